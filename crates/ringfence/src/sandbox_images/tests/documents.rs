use std::path::Path;

use super::super::dockerfile::{DockerfileError, Steps, read};
use super::super::ignored::Ignored;

#[track_caller]
fn refused(text: &str) {
    assert!(matches!(read(text), Err(DockerfileError::Line { .. })), "{text:?}: {:?}", read(text));
}

fn steps(images: &[&str]) -> Result<Steps, DockerfileError> {
    Ok(Steps { images: images.iter().map(ToString::to_string).collect() })
}

#[test]
fn plain_instructions_are_read_with_what_they_go_on_from() {
    assert_eq!(read("FROM debian:trixie\nRUN true\n"), steps(&["debian:trixie"]));
    let stages = "FROM golang AS build\nRUN go build \\\n  # why\n\n  -o /x\nfrom scratch\ncopy --from=build /x /x\n\
                  COPY --from=0 /y /y\nCOPY --from=busybox /z /z\nUSER 1000\n";
    assert_eq!(read(stages), steps(&["golang", "busybox"]));
    assert_eq!(read("FROM a\r\nRUN b\r\n"), steps(&["a"]));
    assert_eq!(read("# a comment = x\n"), Err(DockerfileError::NoBase));
}

#[test]
fn what_the_engine_itself_would_fetch_is_refused_in_every_spelling() {
    for line in [
        "ADD https://x.example/y /y",
        "ADD http:\\\n//127.0.0.1/x /y",
        "ADD [\"http:\\u002f\\u002f127.0.0.1/x\", \"/y\"]",
        "ADD http:\\//127.0.0.1/x /y",
        "ADD http:\"//\"127.0.0.1/x /y",
        "ADD ${WHERE} /y",
        "ADD git@x:y.git /y",
        "A\\\nDD http://127.0.0.1/x /y",
        "add x.tar /y",
        "COPY http://127.0.0.1/x /y",
        "COPY --from=a\\ttacker/img /x /y",
        "COPY --from=\"attacker/img\" /x /y",
        "COPY --fr\\om=attacker/img /x /y",
        "COPY [\"x\", \"/y\"]",
        "COPY $X /y",
        "COPY `x` /y",
        "COPY 'x' /y",
        "FROM att\\acker",
        "FROM \"attacker\"",
        "FROM [attacker]",
    ] {
        refused(&format!("FROM a\n{line}\n"));
    }
    assert!(read("FROM a\nADD x.tar /y\n").unwrap_err().to_string().contains("use COPY"));
    assert_eq!(read("FROM a\nCOPY x.tar /y\nRUN tar xf /y \"$X\" [a] 'b'\n"), steps(&["a"]), "the twin is read");
}

#[test]
fn lines_go_on_as_engines_have_them_go_on() {
    assert_eq!(read("FROM a\nCOPY --from=a\\\nttacker/img /x /y\n"), steps(&["a", "attacker/img"]));
    assert_eq!(read("FROM b AS a\nFROM c\nCOPY --from=a\\\nttacker /x /y\n"), steps(&["b", "c", "attacker"]));
    assert_eq!(read("FROM att\\\n# why \\\n\n  # why\nacker\n"), steps(&["attacker"]));
    assert_eq!(read("FROM b AS a\nFROM c\nCOPY --from=a \\\n  /x /y\n"), steps(&["b", "c"]), "the twin");
    assert_eq!(read("FROM a \\ \t\n  AS b\n"), steps(&["a"]));
    refused("FROM a\\\n  b\n");
    refused("FROM a\nRUN x \\\n y \\\u{a0}\nVOLUME /x\n");
}

#[test]
fn a_stage_is_an_earlier_one_of_exactly_this_name_or_number() {
    for rest in [
        "COPY --from=1 /x /y",
        "COPY --from=2 /x /y",
        "COPY --from=Build /x /y",
        "COPY --from=last /x /y",
        "FROM BUILD",
        "FROM c AS build",
        "FROM c AS Build",
        "FROM c AS 0",
        "FROM c AS scratch",
    ] {
        refused(&format!("FROM a AS build\nFROM b AS last\n{rest}\n"));
    }
    let twin = "FROM a AS build\nFROM b AS last\nCOPY --from=0 /x /y\nCOPY --from=build /x /y\nFROM last AS more\n";
    assert_eq!(read(twin), steps(&["a", "b"]));
    assert_eq!(read("FROM build AS build\n"), steps(&["build"]));
    refused("COPY --from=a /x /y\nFROM a\n");
}

#[test]
fn instructions_that_are_not_understood_are_refused() {
    for line in [
        "FROM $BASE",
        "FROM --platform=linux/arm64 a",
        "FROM a b c d",
        "FROM --x",
        "FROM a\nRUN --mount=type=bind,from=x,target=/x true",
        "FROM a\nRUN --network=host true",
        "FROM a\nRUN <<E\nADD http://x /\nE",
        "FROM a\nCOPY --link x y",
        "FROM a\nCOPY --from=$X y z",
        "FROM a\nCOPY <<E /x\nE",
        "FROM a\nONBUILD ADD http://x /x",
        "FROM a\nVOLUME /data",
        "FROM a\nNEW thing",
        "# syntax=docker/dockerfile:1\nFROM a",
        "# escape=`\nFROM a",
        "\u{feff}FROM a",
    ] {
        refused(line);
    }
}

#[test]
fn no_line_hides_in_another_by_an_odd_end() {
    refused("FROM a\nRUN x \\\u{a0}\nVOLUME /x\n");
    refused("FROM a\nRUN x \\\\\nVOLUME /x\n");
    refused("FROM a\nRUN x\u{b}\nVOLUME /x\n");
    assert_eq!(read("FROM a\nRUN x \\  \n  y\n"), steps(&["a"]));
}

#[test]
fn any_text_is_read_or_refused() {
    proptest::proptest!(|(text in "(?s)(FROM a|RUN|ADD|COPY|#|\\\\|\n| |.){0,40}")| {
        let judged = read(&text);
        proptest::prop_assert!(judged.is_ok() || judged.is_err());
    });
}

#[test]
fn what_a_project_leaves_out_is_left_out_and_exceptions_come_back() {
    let ignored = Ignored::parse("# comment\nnode_modules\n**/*.log\n/build/\n!build/keep\n\n").unwrap();
    let out = |path: &str| ignored.leaves_out(Path::new(path));
    assert!(out("node_modules") && out("node_modules/a/b") && out("x/y.log") && out("y.log") && out("build/x"));
    assert!(!out("src/main.rs") && !out("build/keep") && !out("build/keep/x") && !out("sub/node_modules"));
    assert!(ignored.has_exceptions());
    let all = Ignored::parse(".\n!Dockerfile\n").unwrap();
    assert!(all.leaves_out(Path::new("x/y")) && !all.leaves_out(Path::new("Dockerfile")));
}

#[test]
fn a_line_that_could_be_read_in_two_ways_is_refused() {
    for line in ["a[bc]", "a\\b", "{a,b}", "../x", "a//b", "a/../b", "!"] {
        assert!(Ignored::parse(line).is_err(), "{line}");
    }
    assert!(Ignored::parse(&"x\n".repeat(1_001)).is_err());
    assert!(Ignored::parse(&"x\n".repeat(1_000)).is_ok());
}
