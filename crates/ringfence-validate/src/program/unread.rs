//! Code of languages that nobody here reads: what its words and the texts in it show.
//!
//! It is no reader: it sees that somebody is spoken to, that something is removed or started, and which places the texts name.

use super::Run;
use super::composed::{most_of, too_much};
use super::interpreters::{quoted, starts_programs};
use crate::analysis::{Contact, Fact, Flow, Removal};
use crate::path::{PathClass, classify};
use crate::stream::Argument;
use crate::text::Text;

/// Texts of one line that are looked at, and calls of one kind.
const TEXTS: usize = 256;
const CALLS: usize = 256;
/// Bytes of a program.
const BYTES: usize = 256 * 1024;

/// Words by which another machine is spoken to.
const SPEAKS: &[&str] = &[
    "Net::HTTP",
    "TCPSocket",
    "open-uri",
    "URI.open",
    "Faraday",
    "HTTParty",
    "RestClient",
    "http.Post",
    "http.NewRequest",
    "http.Get",
    "net.Dial",
    "tls.Dial",
    "fsockopen",
    "curl_exec",
    "stream_socket_client",
    "LWP::",
    "HTTP::Tiny",
    "IO::Socket",
    "HttpClient",
    "HttpURLConnection",
    "new Socket(",
    "TcpStream",
    "reqwest",
    "ureq",
    "URLSession",
    "HTTP.post",
    "HTTP.put",
    "httr::",
    "RCurl",
    "socket.http",
    "require(\"socket\")",
    "require('socket')",
    "require \"socket\"",
    "require 'socket'",
    "sockaddr_in",
    "WebClient",
    "file_get_contents('http",
    "file_get_contents(\"http",
    "httpc:request",
    ":gen_tcp",
    "hackney",
];

/// Words by which a text is run as code.
const EVALUATES: &[&str] = &[
    "instance_eval(",
    "class_eval(",
    "module_eval(",
    "instance_eval ",
    "binding.eval",
    "eval(",
    "eval $",
    "eval src",
    "eval code",
    "loadstring(",
    "load(code",
    "load(src",
    "load(body",
    "dostring(",
    "create_function(",
    "assert($",
    "Code.eval_string",
    "source(textConnection",
    "eval(parse",
    "Invoke-Expression",
    "iex ",
];

/// Words by which a folder is removed with all below it.
const SWEEPS: &[&str] = &[
    "recursive=true",
    "recursive=TRUE",
    "recursive = TRUE",
    "remove_tree",
    "rmtree",
    "rm_rf",
    "rm_r(",
    "rm_r ",
    "remove_entry",
    "RemoveAll",
    "remove_dir_all",
    "remove_all(",
    "deleteRecursively",
    "delete-directory",
    "File.rm_rf",
    "removeItem",
    "Directory.Delete",
    "deleteDirectory",
];

/// Words by which one file is.
const REMOVES: &[&str] = &[
    "unlink",
    "os.Remove(",
    "File.delete",
    "Files.delete",
    "remove_file(",
    "delete-file",
    "os.remove(",
    "File.Delete",
    "FileUtils.rm",
    "Dir.delete",
];

/// Words by which a program is started whose words stand behind them.
const STARTS: &[&str] = &[
    "exec.Command(",
    "exec.CommandContext(",
    "Command::new(",
    "ProcessBuilder(",
    "Process.Start(",
    "execl(",
    "execlp(",
    "execvp(",
    "execv(",
    "IO.popen(",
    "Open3.capture2(",
    "Open3.capture3(",
    "Process.spawn(",
    "spawn(",
    "system(",
    "System.cmd(",
    "proc_open(",
    "popen(",
    "Process.run(",
    "Runtime.getRuntime().exec(",
];

/// Names of the home.
const HOMES: &[&str] =
    &["#{Dir.home}", "#{ENV['HOME']}", "#{ENV[\"HOME\"]}", "$ENV{HOME}", "$ENV{'HOME'}", "${HOME}", "$HOME"];
const AT_HOME: &[&str] =
    &["HOME", "UserHomeDir", "Dir.home", "user.home", "home_dir", "expand_path", "NSHomeDirectory"];

/// Endings of such code.
const ENDINGS: &[&str] = &[
    ".go", ".c", ".cc", ".cpp", ".cxx", ".rs", ".java", ".kt", ".kts", ".swift", ".zig", ".nim", ".cs", ".hs", ".ml",
    ".d", ".scala", ".dart", ".cr", ".v",
];

/// Files that are taken where none is named.
const USUAL: &[&str] =
    &["main.go", "./main.go", "src/main.rs", "build.rs", "src/lib.rs", "Program.cs", "Sources/main.swift"];

/// Code that this very text wrote, and that is now made into a program or run.
pub(super) fn sources(run: &mut Run<'_, '_>, name: &str) {
    let builds = matches!(
        name,
        "go" | "gcc"
            | "g++"
            | "cc"
            | "c++"
            | "clang"
            | "clang++"
            | "tcc"
            | "rustc"
            | "rustx"
            | "cargo"
            | "javac"
            | "java"
            | "kotlinc"
            | "kotlin"
            | "scala"
            | "scalac"
            | "swift"
            | "swiftc"
            | "zig"
            | "nim"
            | "dotnet"
            | "csc"
            | "mcs"
            | "ghc"
            | "runghc"
            | "runhaskell"
            | "ocaml"
            | "ocamlfind"
            | "dmd"
            | "rdmd"
            | "dart"
            | "crystal"
            | "v"
            | "jbang"
            | "rust-script"
    );
    if !builds {
        return;
    }
    let reads_input = run.rest().iter().any(|word| word.known() == Some("-"));
    if let Some(text) = run.input.known().filter(|_| reads_input).map(str::to_owned) {
        let place = Argument::new(Text::default(), run.span);
        read(run, &text, &place);
    }
    if run.reading.scope.files.is_empty() {
        return;
    }
    let named: Vec<String> = run
        .rest()
        .iter()
        .filter_map(Argument::known)
        .filter(|word| ENDINGS.iter().any(|ending| word.ends_with(ending)))
        .map(str::to_owned)
        .collect();
    let usual =
        USUAL.iter().filter(|_| matches!(name, "go" | "cargo" | "dotnet" | "swift")).map(|name| (*name).to_owned());
    let place = Argument::new(Text::default(), run.span);
    let all: Vec<String> = named.into_iter().chain(usual).collect();
    for path in all {
        if let Some(text) = run.put_there(&path).and_then(|stream| stream.known().map(str::to_owned)) {
            read(run, &text, &place);
        }
    }
}

/// What a text in such a language shows.
pub(super) fn read(run: &mut Run<'_, '_>, code: &str, place: &Argument) {
    let span = place.span;
    if starts_programs(code) {
        run.fact(span, Fact::Executes { from: vec![Flow::Unknown] });
        for line in quoted(code) {
            run.shell(&Argument::new(Text::known(line), span));
        }
    }
    if code.len() > BYTES {
        too_much(run, "bytes");
        return;
    }
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    let (speaks, sweeps) = (has(SPEAKS), has(SWEEPS));
    let at_home = has(AT_HOME);
    let mut carried: Vec<Flow> = Vec::new();
    let mut other: Option<String> = None;
    let mut is_shell = false;
    for line in code.lines() {
        let removes = REMOVES.iter().chain(SWEEPS).any(|word| line.contains(word));
        let writes =
            ["rite", "'w'", "\"w\"", "'a'", "\"a\"", "O_WRONLY", "ppend", ">>"].iter().any(|word| line.contains(word));
        for text in most_of(run, strings(line), TEXTS) {
            is_shell |= matches!(
                text.trim_start_matches("/usr").trim_start_matches("/bin/"),
                "sh" | "bash" | "zsh" | "cmd.exe"
            );
            if text.contains("://") || is_address(&text) {
                other = other.or_else(|| Some(text.clone()));
                continue;
            }
            let Some(path) = as_path(&text, at_home) else { continue };
            let told = Text::known(path.clone());
            let classes = classify(&told, run.reading.surroundings);
            let is = |class: PathClass| classes.contains(&class);
            let own = is(PathClass::Workspace) || is(PathClass::Temporary) || is(PathClass::Stream);
            if is(PathClass::Secret) && !own {
                run.fact(span, Fact::Reads { path: told.clone() });
            }
            if writes && is(PathClass::ExecutedLater) && !own {
                run.fact(span, Fact::Writes { path: told.clone() });
            }
            let great = is(PathClass::Root)
                || is(PathClass::WholeHome)
                || is(PathClass::System) && !path.contains("/share/") && !path.contains("/bin/")
                || is(PathClass::SystemSettings);
            if (removes || sweeps && great && path.matches('/').count() < 3) && !own {
                let removal = if sweeps { Removal::Tree } else { Removal::One };
                run.fact(span, Fact::Removes { path: told, removal });
            }
            if !own && (is(PathClass::Home) || is(PathClass::WholeHome) || is(PathClass::SystemSettings)) {
                carried.push(Flow::File { path });
            }
        }
    }
    if speaks && has(EVALUATES) {
        // What comes from there is run as it is.
        run.fact(span, Fact::Executes { from: vec![Flow::Network] });
    }
    if speaks && is_shell && has(STARTS) {
        // A shell whose words come from somebody else.
        run.fact(span, Fact::Executes { from: vec![Flow::Network] });
    }
    if let (true, Some(other)) = (speaks, other) {
        run.contacts(Text::known(other), span, Contact::Send, carried);
    }
    for start in STARTS {
        for (at, found) in most_of(run, code.match_indices(start), CALLS) {
            let rest = code.get(at + found.len()..).unwrap_or_default();
            let end: &[char] = if found.ends_with("::new(") { &[';', '\n'] } else { &[')', '\n'] };
            let call = rest.split(end).next().unwrap_or_default();
            let words = most_of(run, strings(call), TEXTS);
            if words.len() > 1 {
                run.start(words.into_iter().map(|word| Argument::new(Text::known(word), span)).collect());
            }
        }
    }
}

/// Texts in quotes of one line.
fn strings(line: &str) -> impl Iterator<Item = String> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let at = rest.find(['"', '\'', '`'])?;
        let sign = rest.get(at..).and_then(|rest| rest.chars().next())?;
        let (found, behind) = rest.get(at + 1..)?.split_once(sign)?;
        rest = behind;
        Some(found.to_owned())
    })
}

/// `10.0.0.7:4444`.
fn is_address(text: &str) -> bool {
    text.split_once(':').is_some_and(|(host, port)| {
        host.contains('.')
            && !host.contains(['/', ' '])
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The path that a text is, from the root or from the home.
fn as_path(text: &str, at_home: bool) -> Option<String> {
    if text.contains([' ', '\n', '\\']) || text.len() > 512 {
        return None;
    }
    for home in HOMES {
        if let Some(rest) = text.strip_prefix(home).filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Some(format!("~{rest}"));
        }
    }
    match text {
        "/" => Some(text.to_owned()),
        text if text.starts_with("/.") && at_home => Some(format!("~{text}")),
        text if text.starts_with(['/', '~']) && text.len() > 2 => Some(text.to_owned()),
        text if text.starts_with('.')
            && !text.starts_with("./")
            && !text.starts_with("..")
            && at_home
            && text.len() > 3 =>
        {
            Some(format!("~/{text}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_path_where_it_begins_at_the_root_or_in_the_home() {
        for (text, at_home, path) in [
            ("/etc/shadow", false, Some("/etc/shadow")),
            ("#{Dir.home}/.ssh/id_rsa", false, Some("~/.ssh/id_rsa")),
            ("/.aws/credentials", true, Some("~/.aws/credentials")),
            (".ssh/id_rsa", true, Some("~/.ssh/id_rsa")),
            (".ssh/id_rsa", false, None),
            ("./data", true, None),
            ("hello world", true, None),
        ] {
            assert_eq!(as_path(text, at_home).as_deref(), path, "{text}");
        }
        assert!(is_address("203.0.113.7:4444") && !is_address("a/b.c:1") && !is_address("key: value"));
        assert!(strings("a(\"x\", 'y', `z").eq(["x", "y"]));
    }

    #[test]
    fn a_program_that_is_too_long_is_not_forgotten() {
        let told = |lines: usize| {
            // Larger than a word on a line may be: the text of the line itself.
            let code = "// a\n".repeat(lines);
            let line = format!("cat > main.go <<'EOF'\n{code}EOF\ngo run main.go\n");
            let limits = crate::Limits { shell_bytes: 1024 * 1024, ..crate::Limits::default() };
            let analysis = crate::analyse(crate::Subject::Shell(&line), &crate::Surroundings::default(), &limits);
            let much = crate::Unknown::TooMuch { bound: "bytes" };
            analysis.facts().any(|act| act.fact == Fact::Unknown { unknown: much.clone() })
        };
        assert!(told(60_000) && !told(100));
    }
}
