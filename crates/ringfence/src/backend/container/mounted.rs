//! Single mounts, as an engine is told them: typed, and all of them read-only.

use bollard::models::{Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType, MountVolumeOptions};

use super::spec::SpecError;

/// A folder or a file of the host, to be read.
pub(super) fn bind(host: String, at: String) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(host),
        target: Some(at),
        read_only: Some(true),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            // Older engines make only the upper mount read-only: what is mounted below it is not shown.
            non_recursive: Some(true),
            create_mountpoint: Some(false),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// A volume that we made, to be read.
pub(super) fn volume(name: &str, at: String) -> Result<Mount, SpecError> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_plain || !name.starts_with("ringfence-") {
        return Err(SpecError::Value { what: "a volume", why: "it is one that we made" });
    }
    Ok(Mount {
        typ: Some(MountType::VOLUME),
        source: Some(name.to_owned()),
        target: Some(at),
        read_only: Some(true),
        volume_options: Some(MountVolumeOptions { no_copy: Some(true), ..MountVolumeOptions::default() }),
        ..Mount::default()
    })
}
