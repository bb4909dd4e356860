//! In which order a start comes to the functions of the program, for the linker: `crates/ringfence-cli/start.order`.
//!
//! The released program is built as ever, with a map of what lies where. A start of it is executed step by step, and the
//! names are written down in the order in which their code was come to.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::footprint::Scratch;
use crate::step::{Failure, Screen, Verbosity, capture};
use crate::workspace::Workspace;

const ORDER: &str = "crates/ringfence-cli/start.order";
/// What is executed step by step: the usual start, and one of code.
const STARTS: [&[&str]; 2] = [&["run", "-q", "--", "true"], &["run", "-q", "--lang", "bash", "--code", "true"]];
/// Executes a program step by step. In C: it is about registers and signals, and nothing of ours starts it.
const STEPS: &str = include_str!("order/steps.c");
/// Fewer names than this are no start, but one that was not followed.
const FEWEST: usize = 500;

/// A function of the program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    size: u64,
    name: String,
}

/// Follows a start and writes the names down.
pub(crate) fn write(workspace: &Workspace) -> Result<ExitCode, Failure> {
    let screen = Screen::new(Verbosity::Summary);
    let folder = workspace.target.join("order");
    fs::create_dir_all(&folder).map_err(|error| Failure::io(format!("make `{}`", folder.display()), &error))?;
    println!("building the released program; this takes some minutes");
    let (map, binary) = build(workspace, &screen, &folder)?;
    let functions = functions_in(&read(&map)?);
    let (Some(first), Some(last)) = (functions.first(), functions.last()) else {
        return Err(Failure::new(format!(
            "`{}` names no function: this linker writes another kind of map",
            map.display()
        )));
    };
    let steps = compile(workspace, &screen, &folder)?;
    let scratch = Scratch::new()?;
    // No project is above it.
    let workspace_of_the_start = scratch.subfolder("empty")?;
    let mut names = Vec::new();
    for (number, start) in STARTS.iter().enumerate() {
        println!("following `ringfence {}`; this takes some minutes", start.join(" "));
        let came_to = folder.join(format!("start-{number}"));
        let mut stepping = workspace.command(&steps);
        scratch.apply(&mut stepping);
        stepping.current_dir(&workspace_of_the_start).arg(&came_to);
        stepping.args([first.address, last.address + last.size].map(|address| format!("{address:x}")));
        stepping.arg(&binary).args(*start);
        capture(&screen, stepping)?.required()?;
        names.extend(in_order(&read(&came_to)?, &functions));
    }
    let mut known = HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    if let Some(name) = names.iter().find(|name| name.contains(' ')) {
        return Err(Failure::new(format!("`{name}` is how a person reads a name; the linker knows it by another")));
    }
    if names.len() < FEWEST {
        return Err(Failure::new(format!("only {} functions were come to, so no start was followed", names.len())));
    }
    let text = names.join("\n") + "\n";
    let path = workspace.root.join(ORDER);
    fs::write(&path, text).map_err(|error| Failure::io(format!("write {ORDER}"), &error))?;
    println!("wrote {} names to {ORDER}", names.len());
    Ok(ExitCode::SUCCESS)
}

/// The program as it is released, and what lies where in it.
fn build(workspace: &Workspace, screen: &Screen, folder: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let map = folder.join("map");
    let mut build = workspace.cargo(["build", "--release", "--message-format", "json-render-diagnostics"]);
    build.env("RINGFENCE_LINK_MAP", &map);
    let said = capture(screen, build)?.required()?;
    let binary = said.lines().filter_map(crate::workspace::executable_in).next_back();
    let binary = binary.ok_or_else(|| Failure::new("`cargo build --release` made no program"))?;
    Ok((map, binary))
}

fn compile(workspace: &Workspace, screen: &Screen, folder: &Path) -> Result<PathBuf, Failure> {
    let (source, steps) = (folder.join("steps.c"), folder.join("steps"));
    fs::write(&source, STEPS).map_err(|error| Failure::io(format!("write `{}`", source.display()), &error))?;
    let mut compile = workspace.command("cc");
    compile.arg("-O2").arg("-o").arg(&steps).arg(&source);
    capture(screen, compile)?.required()?;
    Ok(steps)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::io(format!("read `{}`", path.display()), &error))
}

/// The functions that a linker's map names, sorted. A line has an address, where it is loaded, a size and an alignment, and then, the
/// deeper the farther to the right: a section, a part of it, a symbol.
fn functions_in(map: &str) -> Vec<Function> {
    let mut is_code = false;
    let mut functions = Vec::new();
    for line in map.lines().skip(1) {
        let mut rest = line;
        let mut fields = [""; 4];
        for field in &mut fields {
            let (word, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
            (*field, rest) = (word, after);
        }
        let name = rest.trim_start();
        match rest.len() - name.len() {
            0 => is_code = name == ".text",
            8 => {}
            _ if is_code => {
                let number = |field: &str| u64::from_str_radix(field, 16).ok();
                let (address, size) = (number(fields[0]), number(fields[2]));
                if let (Some(address), Some(size @ 1..)) = (address, size) {
                    functions.push(Function { address, size, name: name.to_owned() });
                }
            }
            _ => {}
        }
    }
    functions.sort();
    functions
}

/// The names of the functions in which `addresses` lie, as they come first.
fn in_order(addresses: &str, functions: &[Function]) -> Vec<String> {
    let mut known = HashSet::new();
    let mut names = Vec::new();
    for address in addresses.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()) {
        let before = functions.partition_point(|function| function.address <= address);
        let function = before.checked_sub(1).and_then(|index| functions.get(index));
        if let Some(function) = function.filter(|function| address < function.address + function.size)
            && known.insert(function.address)
        {
            names.push(function.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
          201000           201000     1000     1 .rodata
          201000           201000       10     1         a.o:(.rodata.x)
          201000           201000       10     1                 a_table
          7cd940           7cd940     2000    64 .text
          7cd950           7cd950       20    16         b.o:(.text.second)
          7cd950           7cd950       20     1                 second
          7cd940           7cd940        8    16         a.o:(.text.first)
          7cd940           7cd940        8     1                 first
          7cd970           7cd970        0     1                 a_label
          7cf000           7cf000        8     8 .data
          7cf000           7cf000        8     1                 a_value
";

    #[test]
    fn a_map_names_functions_and_nothing_else() {
        let names: Vec<_> = functions_in(MAP).into_iter().map(|function| function.name).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(functions_in("").is_empty());
        assert!(functions_in("Memory Configuration\n\nName Origin Length").is_empty(), "another linker's");
    }

    #[test]
    fn a_function_is_named_when_it_is_first_come_to_and_once() {
        let functions = functions_in(MAP);
        assert_eq!(in_order("7cd955\n7cd940\n7cd951\n7cd94f\n", &functions), ["second", "first"]);
        assert!(
            in_order("7cd96f\n7cd970\n1\nnonsense\n", &functions).len() == 1,
            "what lies between belongs to nobody"
        );
    }
}
