//! What is in each image of ours. The recipes lie in `images/` and are a part of this program.

use std::sync::LazyLock;

use serde::Deserialize;

use super::REPOSITORY;
use crate::language::Language;

/// What a hash is made of; counted up when an image of the same recipe is made in another way.
const FORMAT: u32 = 1;
/// Digits of a recipe's hash in a tag.
const SHORT: usize = 12;

const TEXTS: [&str; 7] = [
    include_str!("../../../../images/base/image.yaml"),
    include_str!("../../../../images/python/image.yaml"),
    include_str!("../../../../images/node/image.yaml"),
    include_str!("../../../../images/go/image.yaml"),
    include_str!("../../../../images/rust/image.yaml"),
    include_str!("../../../../images/java/image.yaml"),
    include_str!("../../../../images/polyglot/image.yaml"),
];
const FILES: [(&str, &str); 2] = [
    ("pytest", include_str!("../../../../images/files/pytest")),
    ("tsx", include_str!("../../../../images/files/tsx")),
];

static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| match parse_all(&TEXTS) {
    Ok(recipes) => recipes,
    // They are a part of this program, and a test reads them all.
    Err(problem) => unreachable!("a recipe of this program cannot be read: {problem}"),
});

/// What is in one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    name: String,
    description: String,
    base: Option<String>,
    suite: String,
    own_packages: Vec<String>,
    packages: Vec<String>,
    own_files: Vec<File>,
    files: Vec<File>,
    languages: Vec<Language>,
    programs: Vec<String>,
    hash: String,
}

/// A file that is put into an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What it is called in `images/files`.
    pub from: String,
    /// Where it lies in the image.
    pub to: String,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub content: &'static str,
}

impl Recipe {
    /// Its name, a word.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is good for.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The image of ours that it goes on from.
    pub fn base(&self) -> Option<&'static Recipe> {
        self.base.as_deref().and_then(find)
    }

    /// The Debian release.
    pub fn suite(&self) -> &str {
        &self.suite
    }

    /// The packages that it adds to its base.
    pub fn own_packages(&self) -> &[String] {
        &self.own_packages
    }

    /// All packages, those of its base included.
    pub fn packages(&self) -> &[String] {
        &self.packages
    }

    /// The files that it adds to its base.
    pub fn own_files(&self) -> &[File] {
        &self.own_files
    }

    /// All files, those of its base included.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The languages whose code it is meant for.
    pub fn languages(&self) -> &[Language] {
        &self.languages
    }

    /// The hash of all that it says, its base included.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The name and tag of the image that is made by it, such as `ringfence/python:0123456789ab`.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.repository(), short(&self.hash))
    }

    /// The name alone, such as `ringfence/python`.
    pub fn repository(&self) -> String {
        format!("{REPOSITORY}/{}", self.name)
    }
}

/// The part of a hash that stands in a tag.
pub(super) fn short(hash: &str) -> &str {
    hash.get(..SHORT).unwrap_or(hash)
}

/// All recipes, bases before what goes on from them.
pub fn recipes() -> &'static [Recipe] {
    &RECIPES
}

/// The recipe with this name.
pub fn find(name: &str) -> Option<&'static Recipe> {
    recipes().iter().find(|recipe| recipe.name == name)
}

/// The image for code in a language; without one, the smallest.
pub fn image_for(language: Option<Language>) -> &'static Recipe {
    let serves = |recipe: &&Recipe| language.is_none_or(|language| recipe.languages.contains(&language));
    // The first is the base of all, and a test holds that every language has one.
    recipes().iter().find(serves).unwrap_or(&recipes()[0])
}

/// The image for a program that is called by its plain name, such as `cargo`; for an unknown one, the smallest.
pub fn image_for_program(program: &str) -> &'static Recipe {
    let has = |recipe: &&Recipe| recipe.programs.iter().any(|known| known == program);
    recipes().iter().find(has).unwrap_or(&recipes()[0])
}

/// The name and tag of the image for code in a language, such as `ringfence/python:0123456789ab`.
pub fn default_reference(language: Option<Language>) -> String {
    image_for(language).reference()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    description: String,
    base: Option<String>,
    suite: Option<String>,
    packages: Vec<String>,
    #[serde(default)]
    files: Vec<WrittenFile>,
    #[serde(default)]
    languages: Vec<Language>,
    #[serde(default)]
    programs: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    from: String,
    to: String,
    mode: u32,
}

/// Why a recipe is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecipeProblem {
    #[error("it is not what a recipe looks like: {0}")]
    Text(String),
    #[error("`{0}` is not the name of an image")]
    Name(String),
    #[error("`{0}` is not the name of a package")]
    Package(String),
    #[error("`{0}` is not the name of a release")]
    Suite(String),
    #[error("`{0}` goes on from an image that was not there before it")]
    Base(String),
    #[error("`{0}` must say either a base or a suite")]
    BaseOrSuite(String),
    #[error("the file `{0}` is not there, or would not lie at a plain place")]
    File(String),
}

pub(super) fn parse_all(texts: &[&str]) -> Result<Vec<Recipe>, RecipeProblem> {
    let mut recipes: Vec<Recipe> = Vec::new();
    for text in texts {
        let recipe = parse(text, &recipes)?;
        recipes.push(recipe);
    }
    Ok(recipes)
}

fn parse(text: &str, before: &[Recipe]) -> Result<Recipe, RecipeProblem> {
    let written: Written = serde_saphyr::from_str(text).map_err(|error| RecipeProblem::Text(error.to_string()))?;
    if !is_word(&written.name) || before.iter().any(|recipe| recipe.name == written.name) {
        return Err(RecipeProblem::Name(written.name));
    }
    if let Some(package) = written.packages.iter().find(|package| !is_word(package)) {
        return Err(RecipeProblem::Package(package.clone()));
    }
    let base = match (&written.base, &written.suite) {
        (Some(base), None) => {
            let found = before.iter().find(|recipe| recipe.name == *base);
            Some(found.ok_or_else(|| RecipeProblem::Base(written.name.clone()))?)
        }
        (None, Some(_)) => None,
        (Some(_), Some(_)) | (None, None) => return Err(RecipeProblem::BaseOrSuite(written.name)),
    };
    let suite = match (base, written.suite) {
        (Some(base), _) => base.suite.clone(),
        (None, suite) => suite.unwrap_or_default(),
    };
    if !is_word(&suite) {
        return Err(RecipeProblem::Suite(suite));
    }
    let own_files = written.files.into_iter().map(parse_file).collect::<Result<Vec<_>, _>>()?;
    let mut packages = base.map(|base| base.packages.clone()).unwrap_or_default();
    packages.extend(written.packages.iter().cloned());
    packages.sort();
    packages.dedup();
    let mut files = base.map(|base| base.files.clone()).unwrap_or_default();
    files.extend(own_files.iter().cloned());
    let hash = hash(&written.name, base, &suite, &written.packages, &own_files);
    Ok(Recipe {
        name: written.name,
        description: written.description,
        base: written.base,
        suite,
        own_packages: written.packages,
        packages,
        own_files,
        files,
        languages: written.languages,
        programs: written.programs,
        hash,
    })
}

fn parse_file(written: WrittenFile) -> Result<File, RecipeProblem> {
    let content = FILES.iter().find(|(name, _)| *name == written.from).map(|(_, content)| *content);
    let plain = written.to.strip_prefix('/').is_some_and(|path| path.split('/').all(is_word) && path.len() < 100);
    // Permissions are written as people write them, in octal digits.
    let mode = u32::from_str_radix(&written.mode.to_string(), 8).ok().filter(|mode| *mode <= 0o777);
    match (content, mode) {
        (Some(content), Some(mode)) if plain => Ok(File { from: written.from, to: written.to, mode, content }),
        _ => Err(RecipeProblem::File(written.from)),
    }
}

/// A name of Debian's, and a part of an image's: never an option, and nothing that a shell or a path reads otherwise.
fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-');
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(fits)
}

/// Every part with its length before it, so that no two recipes are written alike.
fn hash(name: &str, base: Option<&Recipe>, suite: &str, packages: &[String], files: &[File]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &str| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    };
    add(&FORMAT.to_string());
    add(name);
    add(base.map_or("", |base| &base.hash));
    add(suite);
    let mut packages: Vec<&String> = packages.iter().collect();
    packages.sort();
    for package in packages {
        add(package);
    }
    for file in files {
        add("file");
        add(&file.to);
        add(&file.mode.to_string());
        add(file.content);
    }
    hasher.finalize().to_hex().to_string()
}
