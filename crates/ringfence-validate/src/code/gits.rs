//! Libraries of git: the commands that they give.

use std::rc::Rc;

use super::call::{Given, Place};
use super::value::{Held, ITEMS, Value};
use super::walk::Walk;

impl Walk<'_, '_> {
    /// A library of git's commands: the command that it gives.
    pub(super) fn by_git(&mut self, name: &str, given: &Given) -> Option<Value> {
        let last = name.rsplit('.').next()?;
        let word = |text: &str| Rc::new(Value::known(text));
        let mut result = None;
        let mut words: Vec<Held> = Vec::new();
        if name.starts_with("git.Repo") || name.starts_with("git.cmd.Git()") || name.starts_with("git.Git()") {
            let told = given.receiver.as_ref().filter(|receiver| receiver.as_known().is_some()).cloned();
            match last {
                "create_remote" | "add_remote" => {
                    words.extend([word("remote"), word("add")]);
                    words.extend(given.args.iter().cloned());
                    words.extend(
                        given.named.iter().filter(|(key, _, _)| key == "url").map(|(_, held, _)| Rc::clone(held)),
                    );
                    result = given.args.first().map(|name| Value { texts: name.texts.clone(), ..Value::default() });
                }
                "remote" if !name.contains(".git.") => {
                    return given.args.first().map(|name| Value { texts: name.texts.clone(), ..Value::default() });
                }
                // For whom it is set is said when it is begun.
                "config_writer" => {
                    return given.all().next().map(|level| Value { texts: level.texts.clone(), ..Value::default() });
                }
                "set_url" => {
                    words.extend([word("remote"), word("set-url"), told.unwrap_or_else(|| word("origin"))]);
                    words.extend(given.args.iter().cloned());
                }
                "set_value" | "add_value" | "set" if name.contains("config_writer") => {
                    let [section, option, value] = given.args.as_slice() else { return None };
                    let section = section.as_known()?.replacen(" \"", ".", 1);
                    let key = format!("{}.{}", section.trim_end_matches('"'), option.as_known()?);
                    let level = told.as_ref().and_then(|level| level.as_known()).unwrap_or("local");
                    words.extend([word("config"), word(&format!("--{level}")), word(&key), Rc::clone(value)]);
                }
                "push" if name.contains("remote") => {
                    words.extend([word("push"), told.unwrap_or_else(|| word("origin"))]);
                    words.extend(given.all().filter(|arg| !arg.texts.is_empty()).cloned());
                }
                "clone_from" | "clone" if !name.contains(".git.") => {
                    words.push(word("clone"));
                    words.extend(given.args.iter().cloned());
                }
                verb if name.contains(".git.") || !name.starts_with("git.Repo") => {
                    words.push(word(&verb.replace('_', "-")));
                    flat(&given.args, &mut words);
                }
                _ => return None,
            }
            options(given, &mut words);
        } else if name.starts_with("simple-git()") {
            match last {
                "addRemote" => words.extend([word("remote"), word("add")]),
                "addConfig" => words.push(word("config")),
                "mirror" => words.extend([word("clone"), word("--mirror")]),
                "raw" => {}
                "push" | "pull" | "fetch" | "clone" | "add" | "rm" | "reset" | "clean" | "remote" | "checkout"
                | "rebase" | "submoduleAdd" => words.push(word(last)),
                _ => return None,
            }
            flat(&given.args, &mut words);
        } else if let Some(verb) = name.strip_prefix("isomorphic-git.") {
            let field = |key: &str| given.args.iter().find_map(|arg| arg.field(key));
            match verb {
                "addRemote" => words.extend([word("remote"), word("add")]),
                "push" | "clone" | "fetch" => words.push(word(verb)),
                _ => return None,
            }
            words.extend([field("remote").filter(|_| verb != "clone"), field("url")].into_iter().flatten());
            if verb == "push" && field("url").is_some() {
                words.retain(|word| word.as_known() != Some("origin"));
            }
        } else if matches!(name, "dugite.GitProcess.exec" | "dugite.exec") {
            flat(given.args.get(..1)?, &mut words);
        } else if matches!(name, "dulwich.porcelain.push" | "dulwich.porcelain.clone") {
            words.push(word(last));
            words.extend(given.args.iter().skip(usize::from(last == "push")).cloned());
        } else {
            return None;
        }
        let place = Place { span: given.span, literal: None };
        self.program(Some((word("git"), place)), Some(words), &Given { span: given.span, ..Given::default() });
        result
    }
}

/// Words, also out of lists and out of objects whose keys are options.
fn flat(args: &[Held], words: &mut Vec<Held>) {
    for arg in args.iter().take(ITEMS) {
        match (&arg.items, &arg.fields) {
            (Some(items), _) => words.extend(items.iter().cloned()),
            (None, Some(fields)) => words.extend(fields.iter().map(|(key, _)| Rc::new(Value::known(&**key)))),
            (None, None) if arg.functions.is_empty() => words.push(Rc::clone(arg)),
            (None, None) => {}
        }
    }
}

/// `force=True` is `--force`, `A=True` is `-A`, `depth=1` is `--depth=…`.
fn options(given: &Given, words: &mut Vec<Held>) {
    for (key, held, _) in &given.named {
        let dashes = if key.len() == 1 { "-" } else { "--" };
        let option = format!("{dashes}{}", key.replace('_', "-"));
        match (held.truth, held.as_known()) {
            (Some(true), _) => words.push(Rc::new(Value::known(option))),
            (None, Some(known)) if !matches!(key.as_str(), "url" | "refspec") => {
                words.push(Rc::new(Value::known(format!("{option}={known}"))));
            }
            _ => {}
        }
    }
}
