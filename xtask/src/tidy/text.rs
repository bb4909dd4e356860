//! Rules about text and names: length, `unsafe`, unfinished work, other people's paths.

use super::rust_source::{code_only, has_word, lines_before_tests};
use super::{Tree, Violation, violation};

const LONGEST: usize = 500;

/// The only crate that may step outside the language's guarantees.
const UNSAFE_ROOM: &str = "crates/ringfence-linux/";

/// Marks of unfinished work. Put together, so that this list does not find itself.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const UNFINISHED_CALLS: &[&str] = &[concat!("to", "do!"), concat!("unimple", "mented!")];

/// Folders of one developer's machine.
const OTHERS_FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Where such a folder is meant: the file, and the folder that it may name.
const MEANT: &[(&str, &str)] = &[];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "helper", "common", "manager", "core"];

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "fixtures" | "snapshots" | "tests.rs"))
}

pub(super) fn files_are_short(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| !is_test_file(path)) {
        let lines = lines_before_tests(&code_only(text));
        if lines > LONGEST {
            let message =
                format!("{lines} lines without tests, {LONGEST} are the most: split the file by what it is about");
            found.push(violation(path, LONGEST + 1, message));
        }
    }
    found
}

pub(super) fn unsafe_stays_in_its_room(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| !path.starts_with(UNSAFE_ROOM)) {
        for (index, _) in code_only(text).lines().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
            found.push(violation(
                path,
                index + 1,
                format!("`unsafe` outside {UNSAFE_ROOM}, put a safe function there and call it"),
            ));
        }
    }
    found
}

pub(super) fn words_are_final(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
                found.push(violation(path, index + 1, format!("`{word}` in committed text, do it or write an issue")));
            }
        }
    }
    for (path, text) in tree.rust() {
        for (index, line) in code_only(text).lines().enumerate() {
            for call in UNFINISHED_CALLS.iter().filter(|call| has_macro(line, call)) {
                found.push(violation(path, index + 1, format!("`{call}` in committed code, write it or leave it out")));
            }
        }
    }
    found
}

fn has_macro(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(start, _)| {
        let before = line.get(..start).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

pub(super) fn tests_are_not_ignored(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.rust() {
        for (index, line) in code_only(text).lines().enumerate() {
            let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
            let plain = squeezed.split("#[").skip(1).any(|rest| {
                rest.strip_prefix("ignore").is_some_and(|after| after.starts_with([']', '=', '(']) || after.is_empty())
            });
            if plain || (squeezed.contains("cfg_attr(") && has_word(line, "ignore")) {
                found.push(violation(path, index + 1, "an ignored test proves nothing, mend it or remove it"));
            }
        }
    }
    found
}

pub(super) fn paths_are_nobodys(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !is_test_file(path)) {
        let until = if path.ends_with(".rs") { lines_before_tests(&code_only(text)) } else { usize::MAX };
        for (index, line) in text.lines().take(until).enumerate() {
            for folder in OTHERS_FOLDERS.iter().filter(|folder| has_absolute(line, folder)) {
                if !MEANT.contains(&(path, folder)) {
                    let message = format!(
                        "`{folder}` is a folder of one machine, write a relative path, or list it under MEANT in xtask/src/tidy/text.rs"
                    );
                    found.push(violation(path, index + 1, message));
                }
            }
        }
    }
    found
}

/// Whether an absolute path begins here with this folder; a longer path that only contains it does not count.
fn has_absolute(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line.get(..start).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~*}".contains(c))
    })
}

pub(super) fn names_say_something(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.0 {
        let mut words = file.path.split(['/', '.', '-', '_']).map(str::to_lowercase);
        if let Some(word) = words.find(|word| EMPTY_NAMES.contains(&word.trim_end_matches('s'))) {
            found.push(violation(&file.path, 1, format!("`{word}` says nothing, name the file after what is inside")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    #[test]
    fn a_file_may_be_long_only_by_its_tests() {
        let long = "fn f() {}\n".repeat(501);
        let enough = "fn f() {}\n".repeat(500);
        let tested = format!("{enough}#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let hidden = format!("#[cfg(test)]\nmod tests {{\n}}\n{long}");
        expect(
            files_are_short,
            &[("a.rs", &enough), ("b.rs", &tested), ("crates/x/tests/c.rs", &long), ("d.md", &long)],
            &[],
        );
        expect(files_are_short, &[("a.rs", &long), ("b.rs", &hidden)], &["a.rs:501", "b.rs:501"]);
    }

    #[test]
    fn the_dangerous_word_is_code_in_one_room_and_prose_elsewhere() {
        let code = "fn f() {}\nunsafe fn g() {}\n";
        expect(unsafe_stays_in_its_room, &[("crates/ringfence-linux/src/a.rs", code), ("README.md", code)], &[]);
        expect(unsafe_stays_in_its_room, &[("crates/ringfence/src/a.rs", "// unsafe\nlet s = \"unsafe\";\n")], &[]);
        expect(
            unsafe_stays_in_its_room,
            &[("crates/ringfence/src/a.rs", code), ("crates/ringfence-linux-like/src/a.rs", code)],
            &["crates/ringfence-linux-like/src/a.rs:2", "crates/ringfence/src/a.rs:2"],
        );
    }

    #[test]
    fn unfinished_work_is_found_in_every_kind_of_text() {
        for word in UNFINISHED {
            expect(
                words_are_final,
                &[("a.md", &format!("x\n{word}: later\n")), ("b.rs", &format!("// {word}\n"))],
                &["a.md:2", "b.rs:1"],
            );
            expect(words_are_final, &[("a.md", &format!("NO{word}S and {word}{word}\n"))], &[]);
        }
        for call in UNFINISHED_CALLS {
            expect(words_are_final, &[("b.rs", &format!("fn f() {{ {call}() }}\n"))], &["b.rs:1"]);
            expect(words_are_final, &[("b.rs", &format!("fn f() {{ core::{call}[] }}\n"))], &["b.rs:1"]);
            expect(words_are_final, &[("b.rs", &format!("// never {call}()\nmy_{call}();\n"))], &[]);
        }
    }

    #[test]
    fn an_ignored_test_is_found_however_it_is_written() {
        for hostile in
            ["#[ignore]", "# [ ignore ]", "#[ignore = \"slow\"]", "#[test] #[ignore]", "#[cfg_attr(miri, ignore)]"]
        {
            expect(tests_are_not_ignored, &[("a.rs", hostile)], &["a.rs:1"]);
        }
        for good in ["// #[ignore]", "\"#[ignore]\"", "#[arg(ignore_case = true)]", "fn ignore() {}", "#[ignored]"] {
            expect(tests_are_not_ignored, &[("a.rs", good)], &[]);
        }
    }

    #[test]
    fn a_developers_folder_is_found_but_not_in_tests_or_inside_longer_paths() {
        for folder in OTHERS_FOLDERS {
            let named = format!("see {folder}x\n");
            let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n    // {folder}\n}}\n");
            expect(paths_are_nobodys, &[("a.md", &named), ("b.rs", &format!("\"{folder}\""))], &["a.md:1", "b.rs:1"]);
            expect(paths_are_nobodys, &[("tests/a.rs", &named), ("c.rs", &tested), ("x/fixtures/a.txt", &named)], &[]);
            expect(paths_are_nobodys, &[("a.md", &format!("target{folder}x ~{folder} $HOME{folder}\n"))], &[]);
        }
        expect(paths_are_nobodys, &[("a.md", "/workspace/x and /rooted/y\n")], &[]);
    }

    #[test]
    fn a_name_that_says_nothing_is_found_in_files_and_folders() {
        for hostile in
            ["src/utils.rs", "src/path_util.rs", "tests/common/mod.rs", "src/core.rs", "a/Manager.rs", "x-helpers.md"]
        {
            expect(names_say_something, &[(hostile, "")], &[&format!("{hostile}:1")]);
        }
        expect(names_say_something, &[("src/score.rs", ""), ("src/utility_bill.rs", ""), ("src/plan.rs", "")], &[]);
    }
}
