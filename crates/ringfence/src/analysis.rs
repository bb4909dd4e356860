//! What a request would do, found by reading it; knows no policy. The reading itself is `ringfence-validate`'s.

use std::path::Path;

pub use ringfence_validate::{Analysis, Does, Step, Surroundings};
use ringfence_validate::{Language as Read, Limits, Subject};

use crate::language::Language;
use crate::request::{Request, Work, WorkspaceAt};

/// Where walls show the workspace unless somebody says otherwise.
const WORKSPACE: &str = "/workspace";

/// Reads `work`.
pub fn analyse(work: &Work, surroundings: &Surroundings) -> Analysis {
    let limits = Limits::default();
    let read = |subject| ringfence_validate::analyse(subject, surroundings, &limits);
    match work {
        Work::Argv(argv) => {
            let argv: Vec<String> = argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
            read(Subject::Argv(&argv))
        }
        Work::Shell(line) => read(Subject::Shell(line)),
        // Bytes that are not text become marks that no language has.
        Work::Code { language, source, .. } => {
            let source = String::from_utf8_lossy(source);
            read(match language {
                Language::Bash => Subject::Shell(&source),
                Language::Python => Subject::Code { language: Read::Python, source: &source },
                Language::Javascript => Subject::Code { language: Read::JavaScript, source: &source },
                Language::Typescript => Subject::Code { language: Read::TypeScript, source: &source },
            })
        }
        Work::Place => Analysis::default(),
    }
}

/// Where a request would run: the same words mean the same files inside and outside.
pub fn surroundings(request: &Request, workspace: &Path, home: Option<&Path>) -> Surroundings {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let inside = match &request.workspace_at {
        WorkspaceAt::Default => WORKSPACE.to_owned(),
        WorkspaceAt::Same => text(workspace),
        WorkspaceAt::Path(path) => text(path),
    };
    let mut workspaces = vec![inside.clone()];
    if !workspaces.contains(&text(workspace)) {
        workspaces.push(text(workspace));
    }
    let usual = Surroundings::default();
    Surroundings {
        directory: text(&Path::new(&inside).join(&request.cwd)).trim_end_matches('/').to_owned(),
        workspaces,
        home: home.filter(|home| home.is_absolute()).map_or(usual.home, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(work: &Work) -> Vec<String> {
        let analysis = analyse(work, &Surroundings::default());
        analysis
            .commands()
            .map(|(argv, _)| argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn a_plain_line_gives_its_commands_and_a_shell_is_looked_into() {
        assert_eq!(commands(&Work::Shell("make && rm -rf build".to_owned())), ["make", "rm -rf build"]);
        let wrapped = Work::Argv(["/bin/bash", "-ec", "rm -rf /"].map(Into::into).to_vec());
        assert_eq!(commands(&wrapped), ["/bin/bash -ec rm -rf /", "rm -rf /"]);
    }

    #[test]
    fn commands_are_found_where_they_are_hidden() {
        for line in ["echo $(rm -rf /)", "eval 'rm -rf /'", "env X=1 rm -rf /", "x=rm; $x -rf /"] {
            let found = commands(&Work::Shell(line.to_owned()));
            assert!(found.iter().any(|command| command == "rm -rf /"), "{line}: {found:?}");
        }
    }

    #[test]
    fn the_workspace_is_known_by_its_name_inside_and_outside() {
        let request = Request::new(Work::Shell("ls".to_owned()));
        let found = surroundings(&request, Path::new("/srv/project"), Some(Path::new("/home/me")));
        assert_eq!(found.workspaces, ["/workspace", "/srv/project"]);
        assert_eq!((found.directory.as_str(), found.home.as_str()), ("/workspace", "/home/me"));
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in ".*") {
            analyse(&Work::Shell(line.clone()), &Surroundings::default());
            analyse(&Work::Argv(vec!["sh".into(), "-c".into(), line.into()]), &Surroundings::default());
        }
    }
}
