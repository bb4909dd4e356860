//! The images of ours that an engine has.

use std::collections::HashMap;

use bollard::Docker;
use bollard::models::ImageSummary;
use bollard::query_parameters::ListImagesOptions;

use super::connect::EngineError;
use super::recipe::{find, short};
use super::record::canonical;
use super::{BUILT_LABEL, IMAGE_LABEL, RECIPE_LABEL, REPOSITORY, cut};

/// More images than this are not looked at.
const MOST_IMAGES: usize = 10_000;
/// What engines write before a name that has no registry.
const REGISTRIES: [&str; 2] = ["docker.io/", "localhost/"];
/// The name of images that are built from a project's own instructions.
pub(super) const PROJECT: &str = "project";

/// How an image stands to the recipe of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It was made by the recipe of this program.
    Current,
    /// It was made by another.
    Outdated,
    /// It comes from a project's own instructions.
    Project,
    /// This program has no recipe of its name.
    Unknown,
}

impl Standing {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Outdated => "outdated",
            Self::Project => "project",
            Self::Unknown => "unknown",
        }
    }
}

/// An image of ours, as the engine tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The recipe's name.
    pub name: String,
    /// What the engine calls it.
    pub id: String,
    /// Its names and tags that are ours.
    pub tags: Vec<String>,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was made, as it says of itself.
    pub built: Option<String>,
    /// Likewise in seconds; what the engine says where the image does not.
    pub built_at: u64,
    /// The recipe's hash, as it says of itself.
    pub recipe: String,
    /// Whether it is up to date.
    pub standing: Standing,
}

/// Why images could not be listed.
pub type ListError = EngineError;

/// The images of ours that the engine has, by name, the newest first.
///
/// An image that was built on one of ours has its labels, too. What has no name of ours is left out, unless it has no name
/// at all, as a build has that was made again.
pub async fn list(engine: &Docker) -> Result<Vec<Listed>, ListError> {
    let filters = HashMap::from([("label".to_owned(), vec![IMAGE_LABEL.to_owned()])]);
    let options = ListImagesOptions { filters: Some(filters), ..ListImagesOptions::default() };
    let images = engine.list_images(Some(options)).await.map_err(EngineError::at("list images"))?;
    let mut listed: Vec<Listed> = images.into_iter().take(MOST_IMAGES).filter_map(of).collect();
    listed.sort_by(|a, b| a.name.cmp(&b.name).then(b.built_at.cmp(&a.built_at)));
    Ok(listed)
}

fn of(image: ImageSummary) -> Option<Listed> {
    let label = |key| image.labels.get(key).map(|text| cut(text));
    let name = label(IMAGE_LABEL)?;
    let recipe = label(RECIPE_LABEL).unwrap_or_default();
    let names: Vec<&str> = image.repo_tags.iter().map(String::as_str).filter(|tag| *tag != "<none>:<none>").collect();
    let ours = format!("{REPOSITORY}/{name}:");
    let tags: Vec<String> = names.iter().map(|tag| plain(tag)).filter(|tag| tag.starts_with(&ours)).map(cut).collect();
    if tags.is_empty() && !names.is_empty() {
        return None;
    }
    let built = label(BUILT_LABEL);
    let said = built.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok()).map(jiff::Timestamp::as_second);
    let standing = match find(&name) {
        _ if name == PROJECT => Standing::Project,
        Some(known) if known.hash() == recipe => Standing::Current,
        Some(_) => Standing::Outdated,
        None => Standing::Unknown,
    };
    Some(Listed {
        id: cut(&canonical(&image.id)),
        tags,
        bytes: image.size.try_into().unwrap_or(0),
        built_at: said.unwrap_or(image.created).try_into().unwrap_or(0),
        built,
        name,
        recipe,
        standing,
    })
}

/// A name without what engines write before it.
fn plain(tag: &str) -> &str {
    REGISTRIES.iter().find_map(|registry| tag.strip_prefix(registry)).unwrap_or(tag)
}

impl Listed {
    /// The tag that names its recipe; nothing when the engine no longer has it under that name.
    pub fn reference(&self) -> Option<&str> {
        let own = format!("{REPOSITORY}/{}:{}", self.name, short(&self.recipe));
        self.tags.iter().find(|tag| **tag == own).map(String::as_str)
    }
}
