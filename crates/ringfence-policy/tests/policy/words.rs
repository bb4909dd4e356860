use proptest::prelude::*;
use ringfence_policy::{split_commands, split_words};

fn check(line: &str, commands: &[&[&str]]) {
    assert_eq!(split_commands(line).unwrap_or_else(|problem| panic!("{line}: {problem}")), commands, "{line}");
}

fn check_refused(line: &str, offset: usize) {
    match split_commands(line) {
        Ok(commands) => panic!("{line:?} gave {commands:?}"),
        Err(problem) => assert_eq!(problem.offset, offset, "{line:?}: {problem}"),
    }
}

#[test]
fn plain_lines_are_split_as_a_shell_would() {
    check("", &[]);
    check("  \t ", &[]);
    check("rm -rf /", &[&["rm", "-rf", "/"]]);
    check("echo 'a b' \"c d\" e\\ f", &[&["echo", "a b", "c d", "e f"]]);
    check("echo '' \"\"", &[&["echo", "", ""]]);
    check("echo a'b'\"c\"", &[&["echo", "abc"]]);
    check("echo 'it'\\''s'", &[&["echo", "it's"]]);
    check("echo \"a \\\"b\\\" \\$c \\x\"", &[&["echo", "a \"b\" $c \\x"]]);
    check("echo a\\\nb", &[&["echo", "ab"]]);
    check("echo a#b", &[&["echo", "a#b"]]);
    check("echo a=b --x=y", &[&["echo", "a=b", "--x=y"]]);
    check("echo '$x `y` * ? [ { ~ ; |'", &[&["echo", "$x `y` * ? [ { ~ ; |"]]);
    check("'if' x", &[&["if", "x"]]);
}

#[test]
fn commands_are_split_at_every_separator() {
    check("a; b && c || d | e & f\ng", &[&["a"], &["b"], &["c"], &["d"], &["e"], &["f"], &["g"]]);
    check("a &&\n b", &[&["a"], &["b"]]);
    check("a;", &[&["a"]]);
    check("\n\na\n\n", &[&["a"]]);
}

#[test]
fn what_needs_a_shell_is_refused_where_it_stands() {
    check_refused("echo $HOME", 5);
    check_refused("echo \"$(id)\"", 6);
    check_refused("echo `id`", 5);
    check_refused("a > b", 2);
    check_refused("a < b", 2);
    check_refused("(a)", 0);
    check_refused("ls *", 3);
    check_refused("ls a?", 4);
    check_refused("ls [ab]", 3);
    check_refused("echo {a,b}", 5);
    check_refused("ls ~", 3);
    check_refused("x --dir=~/a", 8);
    check_refused("A=b cmd", 0);
    check_refused("A='b' cmd", 0);
    check_refused("A+=b", 0);
    check_refused("a # b", 2);
    check_refused("if true", 0);
    check_refused("a; while b", 3);
    check_refused("! a", 0);
    check_refused("time a", 0);
    check_refused("function f", 0);
    check_refused("a &> b", 2);
    check_refused("a |& b", 2);
    check_refused("a ;; b", 2);
    check_refused("; a", 0);
    check_refused("a && && b", 5);
    check_refused("a |", 3);
    check_refused("a &&\n", 5);
    check_refused("'a", 0);
    check_refused("\"a", 0);
    check_refused("a\\", 1);
    check_refused("a\0b", 1);
    check_refused("a\rb", 1);
    check_refused("a\u{a0}b", 1);
    check_refused("a\u{202e}b\u{2003}", 5);
}

#[test]
fn one_command_has_no_separators() {
    assert_eq!(split_words("rm -rf /").unwrap(), ["rm", "-rf", "/"]);
    for line in ["a; b", "a\nb", "a && b", "a | b", "a &", "if x", "A=b c"] {
        assert!(split_words(line).is_err(), "{line}");
    }
}

proptest! {
    #[test]
    fn any_text_is_split_or_refused(line in "\\PC{0,60}|[a-z '\"\\\\;&|\n$*=~#{}()!<>\\[\\]]{0,40}") {
        match split_commands(&line) {
            Ok(commands) => prop_assert!(commands.iter().all(|words| !words.is_empty())),
            Err(problem) => prop_assert!(problem.offset <= line.len()),
        }
        prop_assert!(split_words(&line).is_err() || split_commands(&line).is_ok());
    }

    #[test]
    fn quoted_words_come_back(words in proptest::collection::vec("[^\0]{0,12}", 1..5)) {
        let line: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let first_is_assignment = words[0].contains('=');
        prop_assume!(!first_is_assignment);
        prop_assert_eq!(split_words(&line.join(" ")).unwrap(), words);
    }
}
