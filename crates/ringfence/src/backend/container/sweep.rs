//! Removing what a killed supervisor left: its containers, and volumes of ours that nothing uses. What is somebody else's, or
//! whose supervisor may still live, is never touched.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Method;
use serde::Deserialize;

use super::engine::{ContainerId, Engine, LONG, SHORT, encoded, json};
use super::failure::{EngineError, EngineFailure};
use super::labels::{GUEST, OWNER, Owner, Relation, SUPERVISOR};
use super::workspace_volume::{NAMED, remove};

/// The most containers that are looked at in one sweep.
const MOST: usize = 10_000;
/// A container that was never started for so long belongs to nobody who still means to.
const NEVER_STARTED_SECONDS: u64 = 24 * 60 * 60;
/// What an engine calls a container that was made and not started.
const CREATED: &str = "created";
const LIST: &str = "list the containers";

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Containers.
    pub(crate) containers: usize,
    /// Volumes.
    pub(crate) volumes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
    #[serde(default)]
    state: String,
    #[serde(default)]
    created: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedVolumes {
    #[serde(default)]
    volumes: Option<Vec<ListedVolume>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedVolume {
    name: String,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
    #[serde(default)]
    created_at: Option<String>,
}

impl ListedVolume {
    /// As a container of the same labels: nobody uses it, and whether its container is gone or not there yet only its age says.
    fn like_a_container(self) -> Listed {
        // Without a time that can be read, it was made just now.
        let created = self.created_at.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let created = created.map_or(i64::MAX, jiff::Timestamp::as_second);
        Listed { id: String::new(), labels: self.labels, state: CREATED.to_owned(), created }
    }
}

/// Removes what `owner` left on `engine`. `is_alive` says whether a supervisor, by its label, still runs:
/// `cgroup::is_supervisor_alive` outside of tests.
pub(crate) async fn sweep(
    engine: &Engine,
    owner: &Owner,
    is_alive: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Swept, EngineError> {
    let filters = serde_json::json!({ "label": [OWNER] }).to_string();
    let path = format!("/containers/json?all=true&filters={}", encoded(&filters));
    let listed: Vec<Listed> = engine.get(&path, LONG, LIST).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut swept = Swept::default();
    for container in listed.iter().take(MOST).filter(|container| is_left(container, owner, is_alive, now)) {
        let id = ContainerId::parse(&container.id)
            .ok_or_else(|| EngineFailure::Garbage("a container's id is none".to_owned()).during(LIST))?;
        engine.remove(&id).await?;
        swept.containers += 1;
    }
    swept.volumes = sweep_workspaces(engine, owner, is_alive, now).await?;
    Ok(swept)
}

/// Removes volumes with workspaces in them, of containers that are gone.
async fn sweep_workspaces(
    engine: &Engine,
    owner: &Owner,
    is_alive: &(dyn Fn(&str) -> bool + Sync),
    now: u64,
) -> Result<usize, EngineError> {
    let filters = serde_json::json!({ "label": [OWNER], "dangling": ["true"] }).to_string();
    let path = format!("/volumes?filters={}", encoded(&filters));
    let listed: ListedVolumes = engine.get(&path, SHORT, "list the volumes").await?;
    let mut removed = 0;
    for volume in listed.volumes.into_iter().flatten().take(MOST) {
        let name = volume.name.clone();
        if name.starts_with(NAMED) && is_left(&volume.like_a_container(), owner, is_alive, now) {
            remove(engine, &name).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes volumes with a guest in them, other than `but`, that no container uses.
pub(crate) async fn sweep_volumes(engine: &Engine, but: &str) -> Result<usize, EngineError> {
    let filters = serde_json::json!({ "label": [GUEST], "dangling": ["true"] }).to_string();
    let path = format!("/volumes?filters={}", encoded(&filters));
    let listed: ListedVolumes = engine.get(&path, SHORT, "list the volumes").await?;
    let mut removed = 0;
    for volume in listed.volumes.into_iter().flatten().take(MOST) {
        if volume.name == but || !volume.name.starts_with("ringfence-") {
            continue;
        }
        let path = format!("/volumes/{}", encoded(&volume.name));
        match engine.call(Method::DELETE, &path, json(Vec::new()), SHORT, "remove a volume").await {
            Ok(_) => removed += 1,
            // Somebody began to use it, or removed it: both are as they should be.
            Err(EngineError { failure: EngineFailure::Absent(_) | EngineFailure::Conflict(_), .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn is_left(container: &Listed, owner: &Owner, is_alive: &(dyn Fn(&str) -> bool + Sync), now: u64) -> bool {
    let label = |name: &str| container.labels.as_ref().and_then(|labels| labels.get(name));
    let Some(relation) = label(OWNER).map(|label| owner.relation(label)) else { return false };
    match relation {
        Relation::Foreign => false,
        Relation::Ours => label(SUPERVISOR).is_some_and(|supervisor| !is_alive(supervisor)),
        // Nothing that a supervisor before the start made can be waiting for it. But it may be a copied machine's: then what
        // runs, or is about to, is not ours.
        Relation::OtherBoot => match container.state.as_str() {
            "exited" | "dead" => true,
            CREATED => u64::try_from(container.created)
                .is_ok_and(|created| now.saturating_sub(created) > NEVER_STARTED_SECONDS),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_supervisor_of_ours_left_is_removed() {
        let owner = Owner::current().unwrap();
        let ours = owner.label();
        let other_boot = {
            let parts: Vec<&str> = ours.split('-').collect();
            format!("{}-{}-{}", parts[0], "0".repeat(parts[1].len()), parts[2])
        };
        let is_alive = |supervisor: &str| supervisor != "dead";
        let now = 1_000_000;
        let check = |owner_label: Option<&str>, supervisor: Option<&str>, state: &str, created: i64, expected: bool| {
            let labels = [(OWNER, owner_label), (SUPERVISOR, supervisor)];
            let labels =
                labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
            let container = Listed { id: "x".into(), labels: Some(labels), state: state.into(), created };
            assert_eq!(is_left(&container, &owner, &is_alive, now), expected, "{container:?}");
        };
        check(Some(&ours), Some("dead"), "running", 0, true);
        check(Some(&ours), Some("dead"), "created", 999_999, true);
        check(Some(&ours), Some("alive"), "exited", 0, false);
        check(Some(&ours), None, "exited", 0, false);
        check(None, Some("dead"), "exited", 0, false);
        check(Some("somebody-else-0"), Some("dead"), "exited", 0, false);
        check(Some(&other_boot), Some("dead"), "running", 0, false);
        check(Some(&other_boot), Some("dead"), "exited", 0, true);
        check(Some(&other_boot), Some("dead"), "created", 999_999, false);
        check(Some(&other_boot), Some("dead"), "created", 100, true);
        check(Some(&other_boot), Some("dead"), "created", -5, false);
    }

    #[test]
    fn a_volume_of_another_start_is_left_to_a_machine_that_may_be_about_to_use_it() {
        let owner = Owner::current().unwrap();
        let ours = owner.label();
        let parts: Vec<&str> = ours.split('-').collect();
        let other_boot = format!("{}-{}-{}", parts[0], "0".repeat(parts[1].len()), parts[2]);
        let now = u64::try_from("2026-03-04T05:06:07Z".parse::<jiff::Timestamp>().unwrap().as_second()).unwrap();
        let check = |owner_label: &str, created_at: Option<&str>, expected: bool| {
            let volume = serde_json::json!({
                "Name": "x", "Labels": { OWNER: owner_label, SUPERVISOR: "dead" }, "CreatedAt": created_at,
            });
            let volume: ListedVolume = serde_json::from_value(volume).unwrap();
            let is_left = is_left(&volume.like_a_container(), &owner, &|supervisor| supervisor != "dead", now);
            assert_eq!(is_left, expected, "{owner_label} {created_at:?}");
        };
        check(&other_boot, Some("2026-03-04T05:06:00Z"), false);
        check(&other_boot, Some("2026-03-04T07:06:00.123456789+02:00"), false);
        check(&other_boot, Some("2026-03-02T05:06:00Z"), true);
        check(&other_boot, Some("2026-03-02T05:06:00.123456789+02:00"), true);
        check(&other_boot, Some("yesterday"), false);
        check(&other_boot, None, false);
        check(&ours, Some("2026-03-04T05:06:00Z"), true);
    }
}
