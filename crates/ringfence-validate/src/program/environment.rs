//! Environment variables: which ones change what later commands do.

use super::{Handler, Run};
use crate::analysis::{Act, Fact, Flow, Origin, Step, SystemAct, Trick};
use crate::reading::Reading;
use crate::shell::Value;
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "printenv" => printenv,
        "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" => grep,
        "ps" | "pgrep" | "pidof" => processes,
        "ls" | "basename" => list,
        "xclip" | "xsel" => clipboard,
        "jq" | "gojq" | "jaq" => json,
        _ => return None,
    })
}

/// Variables whose value is a command for a later program.
const COMMANDS: &[&str] = &[
    "PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "EDITOR",
    "VISUAL",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "RSYNC_RSH",
    "CVS_RSH",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "PROMPT_COMMAND",
    "SYSTEMD_PAGER",
    "FCEDIT",
    "PERL5SHELL",
    "MAKESHELL",
    "RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "DOCKER_PAGER",
    "BAT_PAGER",
    "AWS_PAGER",
    "GH_PAGER",
    "TAR_OPTIONS",
];

/// Variables that the shell expands each time that it shows them.
const PROMPTS: &[&str] = &["PS0", "PS1", "PS2", "PS4"];

/// Variables that change which code other programs load.
const LOADERS: &[&str] = &[
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_DEBUG",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "PATH",
    "BASH_ENV",
    "ENV",
    "PS4",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONWARNINGS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_TEMPLATE_DIR",
    "GIT_DIR",
    "GIT_CONFIG_COUNT",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "TERMINFO",
    "HOSTALIASES",
    "OPENSSL_CONF",
    "CURL_HOME",
    "ZDOTDIR",
    "INPUTRC",
    "EDITRC",
    "GEM_PATH",
    "LUA_INIT",
    "VIMINIT",
    "EXINIT",
    "BASH_ALIASES",
    "BASH_CMDS",
];

/// Whether a variable of this name changes what later commands do.
pub(crate) fn poisons(name: &str) -> bool {
    COMMANDS.contains(&name)
        || PROMPTS.contains(&name)
        || LOADERS.contains(&name)
        || name.starts_with("BASH_FUNC_")
        || name.starts_with("GIT_CONFIG_")
}

/// Libraries of the system that developers have loaded first: those that look for mistakes, and those that allocate.
fn is_a_tool(name: &str, text: &Text) -> bool {
    const TOOLS: &[&str] = &[
        "libasan.",
        "libtsan.",
        "libubsan.",
        "liblsan.",
        "libjemalloc.",
        "libtcmalloc",
        "libmimalloc.",
        "libfaketime",
    ];
    let known =
        text.as_known().map(str::trim_end).filter(|known| known.starts_with("/usr/lib/") && !known.contains(".."));
    let last = known.and_then(|known| known.rsplit('/').next()).unwrap_or_default();
    name == "LD_PRELOAD"
        && last.contains(".so")
        && TOOLS.iter().any(|tool| last.starts_with(tool))
        && !last.contains([' ', ':'])
}

/// The facts of setting a variable; a value that is a command is read.
pub(crate) fn sets_environment(
    reading: &mut Reading<'_>,
    name: &str,
    value: &Value,
    span: Span,
    inner: &mut Vec<Step>,
) -> Vec<Act> {
    let text = value.first();
    let mut facts = vec![Act { span, fact: Fact::SetsEnvironment { name: Text::known(name), value: text.clone() } }];
    let loads = LOADERS.contains(&name)
        && !appends_path(name, &text, &reading.surroundings.home)
        && loads_code(name, &text)
        && !is_a_tool(name, &text);
    let redefines = loads || name.starts_with("BASH_FUNC_");
    if redefines
        && !matches!(
            name,
            "PYTHONWARNINGS"
                | "IFS"
                | "LD_DEBUG"
                | "PS4"
                | "TERMINFO"
                | "GIT_DIR"
                | "NODE_OPTIONS"
                | "PYTHONPATH"
                | "NODE_PATH"
        )
    {
        facts.push(Act { span, fact: Fact::Tricks { trick: Trick::Redefines } });
    }
    if matches!(name, "HISTFILE" | "HISTSIZE" | "HISTFILESIZE" | "HISTCONTROL") {
        facts.push(Act { span, fact: Fact::System { act: SystemAct::Traces, about: Text::known(name) } });
    }
    if name == "LESS"
        && let Some((_, line)) = text.as_known().and_then(|options| options.split_once("+!"))
    {
        let (steps, _) = reading.shell_stream(line, Origin::Made(span), &Stream::default());
        inner.extend(steps);
    }
    if COMMANDS.contains(&name)
        && let Some(line) = text.as_known()
        && !line.is_empty()
    {
        let line = line.trim_start_matches('|');
        let (steps, _) = reading.shell_stream(line, Origin::Made(span), &Stream::default());
        inner.extend(steps);
    } else if COMMANDS.contains(&name) && text.has_hole() {
        let from = if value.flows.is_empty() { vec![Flow::Unknown] } else { value.flows.clone() };
        facts.push(Act { span, fact: Fact::Executes { from } });
    }
    // Commands in a prompt run when it is shown, and `set -x` shows one before each command.
    if PROMPTS.contains(&name)
        && let Some(prompt) = text.as_known().filter(|prompt| prompt.contains(['$', '`']))
    {
        let shown = format!(": <<_SHOWN_\n{prompt}\n_SHOWN_\n");
        let (steps, _) = reading.shell_stream(&shown, Origin::Made(span), &Stream::default());
        inner.extend(steps);
    }
    // Code that an interpreter runs at its start.
    if matches!(name, "BASH_ENV" | "ENV" | "PYTHONSTARTUP") && !text.pieces().is_empty() && loads_code(name, &text) {
        facts.push(Act { span, fact: Fact::Executes { from: vec![Flow::File { path: text.to_string() }] } });
    }
    facts
}

/// Whether a value names code: some of these variables mostly hold something else.
fn loads_code(name: &str, value: &Text) -> bool {
    let whole = value.to_string();
    match name {
        // `ENV=staging` is a name that people give to where a program runs; a shell takes it for a file.
        "ENV" => whole.contains(['/', '.', '~']),
        "JAVA_TOOL_OPTIONS" | "_JAVA_OPTIONS" => {
            value.has_hole()
                || ["agent", "OnError", "OnOutOfMemory", "@", "bootclasspath"].iter().any(|word| whole.contains(word))
        }
        _ => true,
    }
}

/// `PATH=$PATH:/x` keeps what was there first.
fn appends_path(name: &str, value: &Text, home: &str) -> bool {
    let whole = value.to_string();
    if name == "LD_LIBRARY_PATH" && whole.split(':').all(|part| part.starts_with('$') || is_own_library(part)) {
        return true;
    }
    matches!(name, "PATH" | "LD_LIBRARY_PATH" | "PERL5LIB" | "RUBYLIB" | "GEM_PATH")
        && (whole == format!("${name}")
            || whole.starts_with(&format!("${name}:"))
            || whole.ends_with(&format!(":${name}")) && name == "PATH" && ordinary_front(&whole, home))
}

/// Folders that people put before the others every day.
fn ordinary_front(value: &str, home: &str) -> bool {
    value.split(':').filter(|part| !part.starts_with('$')).all(|part| {
        ["/usr/", "/opt/", "/home/", "/root", "/workspace"].iter().any(|start| part.starts_with(start))
            || part.ends_with("/bin") && (!part.starts_with("/tmp") || part.starts_with(&format!("{home}/")))
    })
}

/// A folder of libraries that the project builds.
fn is_own_library(part: &str) -> bool {
    !part.starts_with(['/', '~'])
        && !part.contains("..")
        && (part.ends_with("/lib") || part.ends_with("/lib64"))
        && ["./", "build", "target", "out", "dist", "install"].iter().any(|start| part.starts_with(start))
}

/// Programs that show some of the lines that they are given.
const FILTERS: &[&str] =
    &["grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "awk", "gawk", "mawk", "nawk", "sed", "gsed", "perl", "jq"];
/// What people look for among variables when they look for secrets.
const SOUGHT: &[&str] = &["PASS", "PASSWD", "PWORD", "KEY", "KEYS", "CRED", "CREDS", "TOK", "JWT", "APIKEY"];

/// What is looked for among the variables is what is shown of them.
pub(super) fn look_among(run: &mut Run<'_, '_>, name: &str) {
    if !FILTERS.contains(&name) {
        return;
    }
    let rest = run.rest();
    let holds = |stream: &Stream| stream.flows.contains(&Flow::Environment);
    let kept = |word: &Argument| word.known().and_then(|path| run.reading.scope.file(path)).is_some_and(holds);
    if !holds(&run.input) && !rest.iter().any(kept) {
        return;
    }
    // Whether there is one, and how many, shows none of them.
    if name.ends_with("grep") && (has_letter(&rest, &['v', 'q', 'c']) || has_word(&rest, NOT_SHOWN)) {
        return;
    }
    for word in &rest {
        let Some(sought) = word.known().filter(|word| is_sought(word)) else { continue };
        let name = format!("{}_TOKEN", sought.to_ascii_uppercase());
        run.fact(word.span, Fact::ReadsEnvironment { name: Some(Text::known(name)) });
    }
}

const NOT_SHOWN: &[&str] = &["--invert-match", "--quiet", "--silent", "--count"];

fn has_letter(words: &[Argument], letters: &[char]) -> bool {
    let short = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains(letters);
    words.iter().filter_map(Argument::known).any(short)
}

fn has_word(words: &[Argument], wanted: &[&str]) -> bool {
    words.iter().filter_map(Argument::known).any(|word| wanted.contains(&word))
}

fn is_sought(pattern: &str) -> bool {
    let mut words = pattern.split(|letter: char| !letter.is_ascii_alphabetic());
    crate::shell::looks_secret(pattern) || words.any(|word| SOUGHT.contains(&word.to_ascii_uppercase().as_str()))
}

fn grep(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    // One name among the processes: those are no longer all of them. Their numbers are.
    let turned = has_letter(&rest, &['v']) || has_word(&rest, &["--invert-match"]);
    let by_number = |word: &str| !word.starts_with('-') && !word.chars().any(char::is_alphabetic);
    if !turned && !rest.iter().filter_map(Argument::known).any(by_number) {
        not_all_processes(&mut run.output);
    }
}

/// Only some of them are left.
pub(super) fn not_all_processes(stream: &mut Stream) {
    if stream.flows.contains(&all_processes()) {
        stream.flows.retain(|flow| *flow != all_processes());
        stream.add(Flow::Unknown);
    }
}

/// What lists every process of the machine, or all of a user.
pub(super) fn all_processes() -> Flow {
    Flow::File { path: "/proc".to_owned() }
}

/// Words that stand for the folders of all processes lead to them, whatever is cut off.
pub(crate) fn note_processes(words: &mut [Argument]) {
    for word in words.iter_mut().filter(|word| word.text.has_pattern() && word.text.known_start() == "/proc/") {
        word.flows.push(all_processes());
    }
}

fn processes(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let known: Vec<&str> = rest.iter().filter_map(Argument::known).collect();
    let all = match name {
        "ps" => known.iter().any(|word| {
            matches!(*word, "aux" | "ax" | "axu" | "-A" | "-e" | "-ef" | "-eo" | "-aux" | "-eF" | "-u" | "-U")
                || word.starts_with("-e") && !word.starts_with("--")
        }),
        "pgrep" => {
            let words = super::words(
                &rest,
                |option| matches!(option, "-u" | "-U" | "-g" | "-P" | "-t" | "-d").then_some(super::Role::Nothing),
                super::Style::Usual,
            );
            words.operands.iter().all(|word| matches!(word.known(), Some("." | ".*" | "")))
        }
        _ => false,
    };
    if all {
        run.output.add(all_processes());
    } else if name != "ps"
        && let Some(process) = rest.iter().filter_map(Argument::known).rfind(|word| !word.starts_with('-'))
    {
        // Numbers that are only known when it runs, but of a process with a name: whoever ends them ends that.
        let mut numbers = Text::hole(Hole::Variable(format!("pid of {process}")));
        numbers.append(Text::known("\n"));
        run.output.text = Some(numbers);
    }
}

/// The folders of `/proc` are the processes.
fn list(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let folders = rest.iter().filter(|word| !word.text.known_start().starts_with('-'));
    let here = Argument::new(Text::known("."), run.span);
    let lists = |word: &Argument| {
        let path = run.reading.scope.resolve(&word.text).to_string();
        path.trim_end_matches(['/', '.']) == "/proc" || path.starts_with("/proc/[") || path == "/proc/*"
    };
    let all = if folders.clone().next().is_none() { lists(&here) } else { folders.clone().any(lists) };
    if all {
        run.output.add(all_processes());
    }
}

fn printenv(run: &mut Run<'_, '_>, _name: &str) {
    let names: Vec<_> = run.rest().into_iter().filter(|word| !word.text.known_start().starts_with('-')).collect();
    let span = run.span;
    if names.is_empty() {
        run.fact(span, Fact::ReadsEnvironment { name: None });
        run.output = Stream::from(vec![Flow::Environment]);
    }
    for name in names {
        let secret = name.known().is_none_or(crate::shell::looks_secret);
        run.fact(name.span, Fact::ReadsEnvironment { name: Some(name.text) });
        run.output.add(if secret { Flow::Environment } else { Flow::Unknown });
    }
}

/// What the person copied may be a password.
fn clipboard(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    if has_word(&rest, &["-o", "-out", "--output", "-bo", "-ob", "-po"]) {
        run.output = Stream::from(vec![Flow::Environment]);
    }
}

/// A filter can show the variables: all of them by `env` or `$ENV`, unless one is named.
fn json(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let whole = |filter: &str| {
        filter.match_indices("env").chain(filter.match_indices("$ENV")).any(|(at, word)| {
            let before = filter.get(..at).and_then(|before| before.chars().next_back());
            let after = filter.get(at + word.len()..).and_then(|after| after.chars().next());
            let part = |letter: char| letter.is_alphanumeric() || "_.-\"'/[".contains(letter);
            !before.is_some_and(part) && !after.is_some_and(part)
        })
    };
    let filter = rest.iter().filter_map(Argument::known).find(|word| !word.starts_with('-'));
    if filter.is_some_and(whole) {
        let span = run.span;
        run.fact(span, Fact::ReadsEnvironment { name: None });
        run.output.add(Flow::Environment);
    }
}
