//! The books: what the functions of a language and its libraries do, read from data files once.
//!
//! A line is a full name and what a call does: `shutil.rmtree  tree:0/path`. `{a,b}` stands for one name each. A name that ends in
//! `.*` is for everything below that has no line of its own. Lines that begin with `@` say other things about names.

use super::act;
use super::quick::{QuickMap, QuickSet};
use super::role::Role;

/// What is known of one language's functions.
#[derive(Debug, Default)]
pub(crate) struct Book {
    names: QuickMap<String, About>,
    /// For everything below a name.
    below: Vec<(String, Vec<Role>)>,
    /// Attributes that lead into the inner parts of the language.
    inner: QuickSet<&'static str>,
    /// Attributes that do so when what they are taken of does already.
    inner_chain: QuickSet<&'static str>,
    /// Modules that other modules import, and so have as an attribute.
    modules: QuickSet<&'static str>,
    /// Modules and objects whose parts are not to be reached by a name that is not known.
    guarded: Vec<&'static str>,
    /// Lines that could not be read, for a test.
    wrong: Vec<&'static str>,
}

/// What is known of one full name: looked up once, whatever is asked.
#[derive(Debug, Default)]
pub(super) struct About {
    roles: Option<Vec<Role>>,
    /// The name that means the same.
    same: Option<&'static str>,
    /// The text that it stands for.
    pub(super) text: Option<&'static str>,
    /// A module or an object whose parts are not to be reached by a name that is not known.
    is_guarded: bool,
    /// An object whose parts are names of the whole program.
    pub(super) is_globals: bool,
    /// An object that holds the environment.
    pub(super) is_environment: bool,
    /// An object that nobody changes who has nothing to hide.
    is_tampered: bool,
    /// A function that acts, or a module whose parts are guarded: what is made of it may do what it does.
    pub(super) is_ability: bool,
    /// Something below it is one.
    leads: bool,
    /// What of a module runs or loads what it is given, by full name.
    pub(super) strongest: Vec<String>,
}

impl Book {
    /// Reads a book.
    pub(crate) fn read(text: &'static str) -> Self {
        let mut book = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_ascii_whitespace();
            let Some(first) = words.next() else { continue };
            match first {
                "@same" => match (words.next(), words.next()) {
                    (Some(name), Some(same)) => book.of(name).same = Some(same),
                    _ => book.wrong.push(line),
                },
                "@text" => match (words.next(), words.next()) {
                    (Some(name), Some(text)) => book.of(name).text = Some(text),
                    _ => book.wrong.push(line),
                },
                "@guarded" => words.for_each(|name| {
                    book.of(name).is_guarded = true;
                    book.guarded.push(name);
                }),
                "@environment" => words.for_each(|name| book.of(name).is_environment = true),
                "@tampered" => words.for_each(|name| book.of(name).is_tampered = true),
                "@globals" => words.for_each(|name| book.of(name).is_globals = true),
                "@inner" => book.inner.extend(words),
                "@inner-chain" => book.inner_chain.extend(words),
                "@modules" => book.modules.extend(words),
                names => match words.map(Role::read).collect::<Option<Vec<_>>>() {
                    Some(roles) => {
                        for name in spelled_out(names) {
                            match name.strip_suffix(".*") {
                                Some(whole) => book.below.push((whole.to_owned(), roles.clone())),
                                None => book.of(&name).roles.get_or_insert_default().extend(roles.iter().cloned()),
                            }
                        }
                    }
                    None => book.wrong.push(line),
                },
            }
        }
        book.find_abilities();
        book
    }

    /// Marks what acts, and what leads there.
    fn find_abilities(&mut self) {
        let mut found: Vec<(String, bool)> = Vec::new();
        for (name, about) in &mut self.names {
            let roles = about.roles.as_deref().unwrap_or_default();
            about.is_ability = about.is_guarded || act::acts(roles);
            if about.is_ability || about.same.is_some() {
                found.push((name.clone(), roles.iter().any(|role| role.act.runs_what_it_is_given())));
            }
        }
        found.sort_unstable();
        for (name, runs) in found {
            if let Some((module, _)) = name.rsplit_once('.')
                && runs
            {
                self.of(module).strongest.push(name.clone());
            }
            let mut whole = name.as_str();
            while let Some((shorter, _)) = whole.rsplit_once('.') {
                self.of(shorter).leads = true;
                whole = shorter;
            }
        }
    }

    /// Everything that acts, or leads there, and is an attribute of this name of some guarded module.
    pub(super) fn abilities_called(&self, attribute: &str) -> impl Iterator<Item = &str> {
        let below = self.guarded.iter().map(move |module| format!("{module}.{attribute}"));
        below.chain([attribute.to_owned()]).filter_map(|full| self.names.get_key_value(full.as_str())).filter_map(
            |(name, about)| {
                let (name, about) = about.same.map_or((name.as_str(), Some(about)), |same| (same, self.about(same)));
                about.is_some_and(|about| about.is_ability || about.leads).then_some(name)
            },
        )
    }

    /// The name that stands for `name`, if what is called so acts or leads to something that does.
    pub(super) fn ability<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (name, about) = self.meant(name);
        about.is_some_and(|about| about.is_ability || about.leads).then_some(name)
    }

    fn of(&mut self, name: &str) -> &mut About {
        self.names.entry(name.to_owned()).or_default()
    }

    /// What the book says of `name`, if it names it.
    pub(super) fn about(&self, name: &str) -> Option<&About> {
        self.names.get(name)
    }

    /// What a call of `name` does. Nothing if the book does not know it.
    pub(super) fn roles(&self, name: &str) -> Option<&[Role]> {
        if let Some(roles) = self.about(name).and_then(|about| about.roles.as_deref()) {
            return Some(roles);
        }
        let below = |whole: &&(String, Vec<Role>)| {
            name.strip_prefix(whole.0.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        self.below.iter().find(below).map(|(_, roles)| roles.as_slice())
    }

    /// Whether a call of `name` does anything that is told.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.roles(name).is_some()
    }

    /// The name that stands for `name`.
    pub(super) fn canonical<'a>(&self, name: &'a str) -> &'a str {
        self.meant(name).0
    }

    /// The name that stands for `name`, and what the book says of it.
    pub(super) fn meant<'a>(&self, name: &'a str) -> (&'a str, Option<&About>) {
        let (mut name, mut about) = (name, self.about(name));
        // A chain of `@same` lines ends; the bound only keeps a mistake in the data from looping.
        for _ in 0..4 {
            let Some(same) = about.and_then(|about| about.same) else { break };
            (name, about) = (same, self.about(same));
        }
        (name, about)
    }

    pub(super) fn is_guarded(&self, name: &str) -> bool {
        self.about(name).is_some_and(|about| about.is_guarded)
    }

    pub(super) fn is_inner(&self, attribute: &str) -> bool {
        self.inner.contains(attribute)
    }

    pub(super) fn is_inner_chain(&self, attribute: &str) -> bool {
        self.inner_chain.contains(attribute)
    }

    /// The module that an attribute of another module is.
    pub(super) fn module_behind(&self, attribute: &str) -> Option<&'static str> {
        self.modules.get(attribute.trim_start_matches('_')).copied()
    }

    pub(super) fn is_globals(&self, name: &str) -> bool {
        self.about(name).is_some_and(|about| about.is_globals)
    }

    pub(super) fn is_environment(&self, name: &str) -> bool {
        self.about(name).is_some_and(|about| about.is_environment)
    }

    pub(super) fn is_tampered(&self, name: &str) -> bool {
        self.about(name).is_some_and(|about| about.is_tampered)
    }

    #[cfg(test)]
    pub(crate) fn wrong(&self) -> &[&'static str] {
        &self.wrong
    }
}

/// `a.{b,c}` as `a.b` and `a.c`.
fn spelled_out(names: &str) -> Vec<String> {
    let Some((before, rest)) = names.split_once('{') else { return vec![names.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![names.to_owned()] };
    choices.split(',').flat_map(|choice| spelled_out(&format!("{before}{choice}{after}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_for_each_name_in_braces_and_a_star_for_all_below() {
        let book =
            Book::read("os.{remove,unlink}  removes:0/path\nctypes.*  privilege:foreign-code\n@same a b\nnot what:is");
        assert!(book.knows("os.remove") && book.knows("os.unlink") && !book.knows("os.rename"));
        assert!(book.knows("ctypes.cdll.LoadLibrary") && !book.knows("ctypes"));
        assert_eq!(book.canonical("a"), "b");
        assert_eq!(book.wrong(), ["not what:is"]);
    }
}
