//! `cargo xtask bench`: runs the bench programs and holds their numbers beside the targets.
//!
//! A missed target is marked, never a failure: numbers depend on the machine, and a timed test is a test that flickers.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use crate::step::{Failure, Screen, Verbosity, capture};
use crate::tools::debian_packages;
use crate::workspace::Workspace;

#[derive(Clone, Copy, Debug)]
enum Limit {
    Below(f64),
    AtMost(f64),
}

/// What each number should be.
const TARGETS: &[(&str, Limit)] = &[
    ("policy_load_resolve_us", Limit::Below(200.0)),
    ("spawn_over_bare", Limit::AtMost(1.3)),
    ("root_true_library_over_bare", Limit::AtMost(2.8)),
    ("user_true_library_over_bare", Limit::AtMost(2.8)),
    ("root_true_ringfence_over_bwrap", Limit::AtMost(1.0)),
    ("user_true_ringfence_over_bwrap", Limit::AtMost(1.0)),
    ("root_python_ringfence_over_bare", Limit::AtMost(1.15)),
    ("user_python_ringfence_over_bare", Limit::AtMost(1.15)),
    ("idle_ringfence_guest", Limit::AtMost(2.0)),
    ("root_start_100k_above_empty", Limit::AtMost(20.0)),
    ("user_start_100k_above_empty", Limit::AtMost(20.0)),
    ("root_start_100k_denied_above_empty", Limit::AtMost(150.0)),
    ("user_start_100k_denied_above_empty", Limit::AtMost(150.0)),
    ("root_files_inside_over_bare", Limit::AtMost(1.25)),
    ("user_files_inside_over_bare", Limit::AtMost(1.25)),
    ("root_git_status_inside_over_bare", Limit::AtMost(1.25)),
    ("user_git_status_inside_over_bare", Limit::AtMost(1.25)),
    ("hook_shell_ms", Limit::AtMost(15.0)),
    ("hook_shell_100k_ms", Limit::AtMost(15.0)),
    ("hook_read_100k_ms", Limit::AtMost(15.0)),
    ("hook_search_100k_ms", Limit::AtMost(15.0)),
    ("hook_gemini_search_100k_ms", Limit::AtMost(15.0)),
    ("hook_gemini_search_100k_first_ms", Limit::AtMost(15.0)),
    ("mcp_python_call_over_bare", Limit::AtMost(1.3)),
    ("mcp_1000_calls_more_descriptors", Limit::AtMost(0.0)),
    ("mcp_1000_calls_growth_mb", Limit::AtMost(2.0)),
    ("output_10gb_growth_mb", Limit::Below(20.0)),
];

/// Whom we measure ourselves against, and the Debian package that brings each.
const NEIGHBOURS: &[(&str, &str)] = &[
    ("bwrap", "bubblewrap"),
    ("crun", "crun"),
    ("hyperfine", "hyperfine"),
    ("squid", "squid"),
    ("tinyproxy", "tinyproxy-bin"),
];

#[derive(Debug, PartialEq)]
struct Measure {
    name: String,
    value: f64,
    unit: String,
}

/// Runs those bench programs whose own name or whose crate is named; all when none is.
pub(crate) fn bench(workspace: &Workspace, names: &[&str]) -> Result<ExitCode, Failure> {
    let programs = programs(workspace)?;
    let wanted =
        |package: &str, program: &str| names.is_empty() || names.contains(&package) || names.contains(&program);
    let chosen: Vec<_> = programs.iter().filter(|(package, program)| wanted(package, program)).collect();
    for name in names {
        if !programs.iter().any(|(package, program)| package == name || program == name) {
            let known: Vec<_> = programs.iter().map(|(_, program)| program.as_str()).collect();
            return Err(Failure::new(format!(
                "there is no bench program or crate `{name}`; there are {}",
                known.join(", ")
            )));
        }
    }
    // What a bench program starts is the release binary, built before any clock runs.
    let screen = Screen::new(Verbosity::Summary);
    if let Err(failure) = debian_packages(workspace, &screen, NEIGHBOURS) {
        eprintln!("SKIPPED what is missing to compare with: {}", failure.what);
    }
    eprintln!("building");
    capture(&screen, workspace.cargo(["build", "--release", "--workspace", "--bins"]))?.required()?;
    let mut measures = Vec::new();
    let mut failed = Vec::new();
    for (package, program) in chosen {
        eprintln!("running {package} {program}");
        let ended = capture(&screen, workspace.cargo(["bench", "--package", package, "--bench", program]))?.required();
        match ended {
            Ok(text) => measures.extend(text.lines().filter_map(parse)),
            Err(failure) => {
                eprintln!("{}\nerror: {}", failure.output.trim_end(), failure.what);
                failed.push(program.as_str());
            }
        }
    }
    println!("{}", machine());
    print!("{}", table(&measures));
    if failed.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::new(format!("did not run to the end: {}", failed.join(", "))))
    }
}

/// Every `crates/CRATE/benches/NAME.rs`, as crate and name.
fn programs(workspace: &Workspace) -> Result<Vec<(String, String)>, Failure> {
    let mut programs = Vec::new();
    for file in workspace.files()? {
        if let ["crates", package, "benches", name] = file.split('/').collect::<Vec<_>>()[..]
            && let Some(name) = name.strip_suffix(".rs")
        {
            programs.push((package.to_owned(), name.to_owned()));
        }
    }
    Ok(programs)
}

/// Reads `NAME VALUE UNIT`; any other line is talk.
fn parse(line: &str) -> Option<Measure> {
    let [name, value, unit] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    name.chars().all(plain).then(|| Measure { name: name.to_owned(), value, unit: unit.to_owned() })
}

fn table(measures: &[Measure]) -> String {
    let mut lines = format!("{:<36} {:>14} {:<10} {:>10}  {}\n", "name", "value", "unit", "target", "");
    let targets: BTreeMap<_, _> = TARGETS.iter().copied().collect();
    for measure in measures {
        let limit = targets.get(measure.name.as_str());
        let (target, mark) = match limit {
            None => (String::new(), ""),
            Some(limit) => (limit.to_string(), if limit.holds(measure.value) { "met" } else { "NOT MET" }),
        };
        lines.push_str(&format!(
            "{:<36} {:>14.3} {:<10} {target:>10}  {mark}\n",
            measure.name, measure.value, measure.unit
        ));
    }
    for (name, limit) in TARGETS {
        if !measures.iter().any(|measure| measure.name == *name) {
            lines.push_str(&format!("{name:<36} {:>14} {:<10} {:>10}  not measured\n", "-", "", limit.to_string()));
        }
    }
    lines
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Below(limit) => value < limit,
            Self::AtMost(limit) => value <= limit,
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Below(limit) => write!(f, "< {limit}"),
            Self::AtMost(limit) => write!(f, "<= {limit}"),
        }
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map_or("unknown", |(_, m)| m);
    format!("{cores} cores, {}, Linux {}\n", model.trim(), kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_has_a_plain_name_a_finite_number_and_a_unit() {
        let good = Measure { name: "spawn_over_bare".into(), value: 1.25, unit: "ratio".into() };
        assert_eq!(parse("spawn_over_bare 1.25 ratio"), Some(good));
        for talk in ["", "spawn_over_bare 1.25", "took 3 s longer", "Finished 3 tests", "x NaN us", "x inf us", "x y z"]
        {
            assert_eq!(parse(talk), None, "{talk}");
        }
    }

    #[test]
    fn each_target_is_met_missed_or_not_measured() {
        let measure = |name: &str, value| Measure { name: name.into(), value, unit: "u".into() };
        let text =
            table(&[measure("spawn_over_bare", 1.3), measure("policy_load_resolve_us", 200.0), measure("other", 1.0)]);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("spawn_over_bare").ends_with(" met"));
        assert!(line("policy_load_resolve_us").ends_with("NOT MET"));
        assert!(line("output_10gb_growth_mb").ends_with("not measured"));
        assert!(!line("other").contains("met"));
    }
}
