//! `package.json` and `setup.py`: scripts that this very text wrote, and that a package manager then runs.

use super::{Handler, Run};
use crate::language::Language;
use crate::stream::Argument;
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    matches!(name, "pip" | "pip3").then_some(pip)
}

/// `pip install FOLDER`: the folder's `setup.py` is run, where this very text wrote it.
fn pip(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = run.subcommand(name).or_else(|| super::book().program(name)) {
        run.by_the_book(entry);
    }
    let span = run.span;
    let folders: Vec<String> = run.rest().iter().filter_map(Argument::known).map(str::to_owned).collect();
    for folder in folders.iter().filter(|folder| folder.starts_with(['.', '/'])) {
        if let Some(written) = run.put_there(&format!("{}/setup.py", folder.trim_end_matches('/'))) {
            run.execute(&written, Language::Python, span);
        }
    }
}

/// What a package manager runs by itself where it installs, or packs.
const INSTALLS: &[&str] = &["preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare"];
const PACKS: &[&str] = &["prepublishOnly", "prepack", "prepare", "postpack", "publish", "postpublish"];

/// The scripts that these words have run, where the text itself wrote them.
pub(super) fn scripts(run: &mut Run<'_, '_>, name: &str, operands: &[Argument]) {
    let Some(written) = run.reading.file("package.json") else { return };
    let Some(scripts) = written
        .known()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
        .and_then(|manifest| manifest.get("scripts").cloned())
    else {
        return;
    };
    let verb = operands.first().and_then(Argument::known);
    let wanted: Vec<String> = match (name, verb) {
        ("yarn", None) | (_, Some("install" | "i" | "ci" | "add" | "install-test" | "it" | "update" | "up")) => {
            INSTALLS.iter().map(|script| (*script).to_owned()).collect()
        }
        (_, Some("publish" | "pack")) => PACKS.iter().map(|script| (*script).to_owned()).collect(),
        (_, Some("run" | "run-script")) => around(operands.get(1).and_then(Argument::known)),
        (_, verb) => around(verb),
    };
    let span = run.span;
    for line in wanted.iter().filter_map(|script| scripts.get(script)?.as_str()) {
        run.shell(&Argument::new(Text::known(line), span));
    }
}

/// A script, and what runs before and behind it.
fn around(script: Option<&str>) -> Vec<String> {
    let Some(script) = script else { return Vec::new() };
    ["pre", "", "post"].iter().map(|start| format!("{start}{script}")).collect()
}

/// `npm pkg set scripts.test=LINE`, `npm set-script test LINE`: the line is what somebody runs later.
pub(super) fn sets_scripts(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let known: Vec<&str> = rest.iter().filter_map(Argument::known).collect();
    let lines: Vec<(String, crate::span::Span)> = match (name, known.as_slice()) {
        ("npm" | "pnpm", ["pkg", "set", ..]) => rest
            .iter()
            .filter_map(|word| Some((word.known()?.strip_prefix("scripts.")?.split_once('=')?.1.to_owned(), word.span)))
            .collect(),
        ("npm", ["set-script", _, line]) => vec![((*line).to_owned(), run.span)],
        ("npm", ["explore", ..]) => {
            let behind = rest.iter().skip_while(|word| word.known() != Some("--")).skip(1).cloned().collect();
            run.start(behind);
            Vec::new()
        }
        _ => Vec::new(),
    };
    for (line, span) in lines {
        run.later(&line, span);
    }
}
