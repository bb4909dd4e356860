//! What an engine says of a container, held against what it was told to make.

use serde::Deserialize;

use super::engine::CreateError;
use super::failure::clean;
use super::spec::{ImageId, Spec};

/// What is looked at of a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Inspected {
    pub(super) image: String,
    pub(super) state: InspectedState,
    #[serde(default)]
    pub(super) mounts: Option<Vec<InspectedMount>>,
    pub(super) host_config: InspectedHost,
    pub(super) config: InspectedConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InspectedState {
    pub(super) status: String,
    pub(super) exit_code: i64,
    #[serde(rename = "OOMKilled", default)]
    pub(super) oom_killed: bool,
    #[serde(default)]
    pub(super) error: String,
    #[serde(default)]
    pub(super) pid: i32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InspectedMount {
    #[serde(rename = "Type")]
    pub(super) kind: String,
    pub(super) destination: String,
    #[serde(rename = "RW")]
    pub(super) writable: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InspectedHost {
    pub(super) network_mode: String,
    pub(super) privileged: bool,
    pub(super) readonly_rootfs: bool,
    pub(super) memory: u64,
    pub(super) pids_limit: Option<i64>,
    pub(super) runtime: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InspectedConfig {
    pub(super) user: String,
}

/// Whether the engine made something other than it was told: an engine that does not know an option leaves it out silently.
pub(super) fn differs(spec: &Spec, found: &Inspected) -> Result<(), CreateError> {
    let host = &found.host_config;
    let number = |value: i128| value.to_string();
    let user = format!("{}:{}", spec.user.uid, spec.user.gid);
    let image = ImageId::parse(&found.image).map_or_else(|| clean(&found.image), |id| id.as_str().to_owned());
    let mut wanted = vec![
        ("the image", spec.image.as_str().to_owned(), image),
        ("the user", user, clean(&found.config.user)),
        ("the network", "none".to_owned(), clean(&host.network_mode)),
        ("privileges", "false".to_owned(), host.privileged.to_string()),
        ("a read-only root", "true".to_owned(), host.readonly_rootfs.to_string()),
    ];
    if let Some(memory) = spec.memory_bytes {
        wanted.push(("memory", number(memory.into()), number(host.memory.into())));
    }
    if let Some(processes) = spec.processes {
        wanted.push(("processes", number(processes.into()), number(host.pids_limit.unwrap_or(-1).into())));
    }
    if let (Some(runtime), Some(found)) = (&spec.runtime, &host.runtime)
        && found != "oci"
    {
        wanted.push(("the runtime", runtime.clone(), clean(found)));
    }
    for mount in found.mounts.as_deref().unwrap_or_default() {
        // Ours are all read-only, but for file systems in memory. A volume that an image declares would be writable.
        if mount.writable && mount.kind != "tmpfs" {
            wanted.push(("mounts", "none to write to".to_owned(), clean(&mount.destination)));
        }
    }
    match wanted.into_iter().find(|(_, wanted, found)| wanted != found) {
        Some((what, wanted, found)) => {
            Err(CreateError::Different { wanted: format!("{what} {wanted}"), found: format!("{what} {found}") })
        }
        None => Ok(()),
    }
}
