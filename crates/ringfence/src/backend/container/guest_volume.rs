//! Our guest on an engine that does not see this machine's files: in a volume that is named by what is in it.
//!
//! Whoever controls an engine can write to its volumes, and to everything else there; they are trusted as root of this machine
//! is. What is read back is compared so that a half-written or mistaken volume is not used, not to guard against them.

use std::io::Read;

use hyper::Method;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::engine::{ContainerId, Engine, LONG, SHORT, archive, encoded, json};
use super::failure::{EngineError, EngineFailure};
use super::labels::{GUEST as GUEST_LABEL, Labels};
use super::spec::{GUEST_NAME, GuestPlace, ImageId};

const PUT: &str = "put the guest into its volume";
const READ_BACK: &str = "read the guest back from its volume";
/// The largest guest: several times one that was made for use, so that one made for tests fits too.
const MOST_GUEST: u64 = 128 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Volume {
    #[serde(default)]
    labels: Option<std::collections::HashMap<String, String>>,
}

/// The name of the volume for a guest.
pub(crate) fn name_for(guest: &[u8]) -> String {
    format!("ringfence-guest-{}", &hash(guest)[..32])
}

/// Makes sure that the engine has a volume with exactly `guest` in it, and returns its name. `image` is any image that the
/// engine has: nothing of it is run. The labels are those of a courier.
pub(crate) async fn put(
    engine: &Engine,
    guest: &[u8],
    image: &ImageId,
    labels: &Labels,
) -> Result<String, EngineError> {
    if u64::try_from(guest.len()).map_or(true, |length| length > MOST_GUEST) {
        let message = format!("our own binary has {} bytes, and {MOST_GUEST} are the most that is sent", guest.len());
        return Err(EngineFailure::Lost(message).during(PUT));
    }
    let name = name_for(guest);
    let wanted = hash(guest);
    ensure_volume(engine, &name, &wanted).await?;
    let place = GuestPlace::new().map_err(|error| EngineFailure::Lost(error.to_string()).during(READ_BACK))?;
    let courier = engine.create_courier(&courier_body(image, &name, &place, labels)).await?;
    let put = fill(engine, &courier, &place, guest, &wanted).await;
    let removed = engine.remove(&courier).await;
    put?;
    removed?;
    Ok(name)
}

async fn ensure_volume(engine: &Engine, name: &str, wanted: &str) -> Result<(), EngineError> {
    const ATTEMPT: &str = "make a volume for the guest";
    let body = serde_json::json!({ "Name": name, "Driver": "local", "Labels": { GUEST_LABEL: wanted } }).to_string();
    let path = format!("/volumes/{}", encoded(name));
    let found = match engine.get::<Volume>(&path, SHORT, ATTEMPT).await {
        Ok(found) => found,
        Err(EngineError { failure: EngineFailure::Absent(_), .. }) => {
            engine.call(Method::POST, "/volumes/create", json(body.into_bytes()), SHORT, ATTEMPT).await?;
            engine.get(&path, SHORT, ATTEMPT).await?
        }
        Err(error) => return Err(error),
    };
    if found.labels.unwrap_or_default().get(GUEST_LABEL).is_none_or(|label| label != wanted) {
        let message = format!("there is a volume `{name}` that is not ours; remove it");
        return Err(EngineFailure::Conflict(message).during(ATTEMPT));
    }
    Ok(())
}

/// Never started; and if it were, it could do nothing.
pub(super) fn courier_body(image: &ImageId, volume: &str, place: &GuestPlace, labels: &Labels) -> serde_json::Value {
    serde_json::json!({
        "Image": image.as_str(),
        // Podman gives what is put there to this user. The guest must be nobody's who runs inside.
        "User": "0:0",
        "Entrypoint": ["/nothing"],
        "Cmd": [],
        "Labels": labels.as_map(),
        "NetworkDisabled": true,
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "LogConfig": { "Type": "none" },
            "Mounts": [{ "Type": "volume", "Source": volume, "Target": place.as_str(), "VolumeOptions": { "NoCopy": true } }],
        },
    })
}

async fn fill(
    engine: &Engine,
    courier: &ContainerId,
    place: &GuestPlace,
    guest: &[u8],
    wanted: &str,
) -> Result<(), EngineError> {
    if read_back(engine, courier, place).await? == Some(wanted.to_owned()) {
        return Ok(());
    }
    let packed = pack(guest).map_err(|error| EngineFailure::Lost(error.to_string()).during(PUT))?;
    let path = format!("/containers/{}/archive?path={}", courier.as_str(), encoded(place.as_str()));
    engine.call(Method::PUT, &path, archive(packed), LONG, PUT).await?;
    if read_back(engine, courier, place).await? == Some(wanted.to_owned()) {
        Ok(())
    } else {
        Err(EngineFailure::Garbage("what is there is not what was put there".to_owned()).during(READ_BACK))
    }
}

/// The hash of what is in the volume; nothing when it is empty.
async fn read_back(engine: &Engine, courier: &ContainerId, place: &GuestPlace) -> Result<Option<String>, EngineError> {
    let guest = format!("{}/{GUEST_NAME}", place.as_str());
    let path = format!("/containers/{}/archive?path={}", courier.as_str(), encoded(&guest));
    match engine.call(Method::GET, &path, json(Vec::new()), LONG, READ_BACK).await {
        Ok(packed) => Ok(unpack_hash(&packed)),
        Err(EngineError { failure: EngineFailure::Absent(_), .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn pack(guest: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_path("guest")?;
    header.set_size(u64::try_from(guest.len()).map_err(std::io::Error::other)?);
    header.set_mode(0o555);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, guest)?;
    builder.into_inner()
}

/// The hash of the one regular, executable file in an archive; nothing when it is anything else.
fn unpack_hash(packed: &[u8]) -> Option<String> {
    let mut archive = tar::Archive::new(packed);
    let mut entries = archive.entries().ok()?;
    let entry = entries.next()?.ok()?;
    let header = entry.header();
    let is_guest = header.entry_type().is_file() && header.mode().ok()? & 0o7777 == 0o555 && header.uid().ok()? == 0;
    if !is_guest || entry.size() > MOST_GUEST {
        return None;
    }
    let mut bytes = Vec::new();
    entry.take(MOST_GUEST).read_to_end(&mut bytes).ok()?;
    Some(hash(&bytes))
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_file_that_everybody_may_execute_and_nobody_write_is_a_guest() {
        assert_eq!(unpack_hash(&pack(b"guest").unwrap()), Some(hash(b"guest")));
        assert_ne!(name_for(b"guest"), name_for(b"guess"));
        let check = |change: fn(&mut tar::Header)| {
            let mut header = tar::Header::new_ustar();
            header.set_path("guest").unwrap();
            header.set_size(5);
            header.set_mode(0o555);
            header.set_uid(0);
            change(&mut header);
            header.set_cksum();
            let mut builder = tar::Builder::new(Vec::new());
            builder.append(&header, &b"guest"[..]).unwrap();
            unpack_hash(&builder.into_inner().unwrap())
        };
        assert!(check(|_| {}).is_some());
        assert_eq!(check(|header| header.set_mode(0o755)), None);
        assert_eq!(check(|header| header.set_mode(0o4555)), None);
        assert_eq!(check(|header| header.set_uid(1000)), None);
        assert_eq!(check(|header| header.set_entry_type(tar::EntryType::Symlink)), None);
        assert_eq!(unpack_hash(b"no archive"), None);
        assert_eq!(unpack_hash(b""), None);
    }
}
