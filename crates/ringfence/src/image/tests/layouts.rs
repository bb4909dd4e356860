//! Layouts that somebody made or changed, and what the store keeps of them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ringfence_testkit::oci::{LayoutFolder, Packing, architecture, archive, file, folder, hard_link, link};
use serde_json::{Value, json};

use super::super::*;
use crate::state::StateFolder;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A layout and a state folder.
struct Place {
    home: tempfile::TempDir,
    layout: LayoutFolder,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let layout = LayoutFolder::make(home.path().join("layout")).unwrap();
        Self { home, layout }
    }

    /// With one image of these layers.
    fn with(layers: &[(Vec<u8>, Packing)]) -> Self {
        let mut place = Self::new();
        let image = place.image(layers);
        place.layout.add(image, Some("latest")).unwrap();
        place
    }

    fn image(&self, layers: &[(Vec<u8>, Packing)]) -> Value {
        let layers: Vec<Value> =
            layers.iter().map(|(bytes, packing)| self.layout.layer(bytes, *packing).unwrap()).collect();
        self.layout.image(&layers, &["A=b", "PATH=/opt/bin:relative:/bin"]).unwrap()
    }

    fn state(&self) -> StateFolder {
        StateFolder::prepare(self.home.path().join("state")).unwrap()
    }

    fn store(&self) -> PathBuf {
        self.home.path().join("state/images")
    }

    fn choose(&self, name: Option<&str>) -> Result<Chosen, LayoutError> {
        Layout::open(self.layout.path())?.choose(name)
    }

    async fn obtain(&self) -> Result<Unpacked, StoreError> {
        let layout = Layout::open(self.layout.path()).unwrap();
        let chosen = layout.choose(None).unwrap();
        obtain(&self.state(), &layout, &chosen, Limits { bytes: 1 << 20, entries: 100 }).await
    }

    /// What is in the store, sorted.
    fn stored(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.store()) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn blob(&self, descriptor: &Value) -> PathBuf {
        let hex = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        self.layout.path().join("blobs/sha256").join(hex)
    }
}

fn one_file() -> Vec<(Vec<u8>, Packing)> {
    vec![(archive(&[folder("bin"), file("bin/tool", "1")]), Packing::Gzip)]
}

fn read(root: &Path, name: &str) -> Option<String> {
    fs::read_to_string(root.join(name)).ok()
}

#[track_caller]
fn expect<T: std::fmt::Debug>(result: Result<T, impl std::error::Error>, problem: &str) {
    let error = result.unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{error}: {source}").contains(problem), "{error}: {source}, not {problem}");
}

#[tokio::test]
async fn layers_lie_over_each_other_however_they_are_packed() {
    let place = Place::with(&[
        (archive(&[folder("bin"), file("bin/tool", "1"), file("old", "1")]), Packing::Gzip),
        (archive(&[file("bin/tool", "2"), file(".wh.old", "")]), Packing::Zstd),
        (archive(&[link("tool", "bin/tool"), hard_link("bin/again", "bin/tool")]), Packing::Plain),
    ]);
    assert_eq!(place.choose(None).unwrap().search_path(), Some("/opt/bin:/bin"));
    let unpacked = place.obtain().await.unwrap();
    let root = unpacked.root();
    assert_eq!(read(root, "bin/tool").as_deref(), Some("2"));
    assert_eq!(read(root, "bin/again").as_deref(), Some("2"));
    assert_eq!(read(root, "tool").as_deref(), Some("2"));
    assert_eq!(read(root, "old"), None);
    assert_eq!(fs::metadata(place.store()).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(root.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(root).unwrap().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn s12_a_blob_that_is_not_what_its_digest_says_is_refused() {
    let layers = one_file();
    for part in 0..3 {
        for change in ["replace", "append", "cut", "link", "pipe", "remove"] {
            let mut place = Place::new();
            let layer = place.layout.layer(&layers[0].0, Packing::Plain).unwrap();
            let image = place.layout.image(std::slice::from_ref(&layer), &[]).unwrap();
            place.layout.add(image.clone(), None).unwrap();
            place.obtain().await.unwrap();
            fs::remove_dir_all(place.store()).unwrap();
            let manifest: Value = serde_json::from_slice(&fs::read(place.blob(&image)).unwrap()).unwrap();
            let path = place.blob([&image, &manifest["config"], &layer][part]);
            let mut content = fs::read(&path).unwrap();
            match change {
                "replace" => content[20] ^= 1,
                "append" => content.push(b' '),
                "cut" => content.truncate(content.len() - 1),
                _ => {}
            }
            fs::remove_file(&path).unwrap();
            match change {
                "link" => {
                    fs::write(place.home.path().join("same"), &content).unwrap();
                    symlink(place.home.path().join("same"), &path).unwrap();
                }
                "pipe" => {
                    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
                }
                "remove" => {}
                _ => fs::write(&path, &content).unwrap(),
            }
            let problem = match change {
                "link" | "pipe" => "is no plain file",
                "remove" => "could not read",
                _ => "is not what its digest says",
            };
            if part == 2 {
                expect(place.obtain().await, problem);
                assert_eq!(place.stored(), [""; 0], "{change}");
            } else {
                expect(place.choose(None), problem);
            }
        }
    }
}

#[tokio::test]
async fn f20_a_hostile_layer_leaves_nothing_in_the_store() {
    let honest = archive(&[folder("a"), file("a/b", "1")]);
    Place::with(&[(honest.clone(), Packing::Gzip)]).obtain().await.unwrap();
    for hostile in [file("../evil", "x"), file("/evil", "x"), hard_link("a/c", "../../evil")] {
        let place = Place::with(&[(honest.clone(), Packing::Gzip), (archive(&[hostile]), Packing::Gzip)]);
        expect(place.obtain().await, "layer 2 of the image is refused");
        assert_eq!(place.stored(), [""; 0]);
        assert!(!place.store().join("evil").exists());
    }
    let bomb = archive(&[file("zeros", vec![0; 2 << 20])]);
    for packing in [Packing::Gzip, Packing::Zstd] {
        let place = Place::with(&[(bomb.clone(), packing)]);
        expect(place.obtain().await, "more than is permitted");
        assert_eq!(place.stored(), [""; 0]);
    }
    let place = Place::with(&[(b"\x1f\x8b no gzip".to_vec(), Packing::Plain)]);
    expect(place.obtain().await, "ends within a header");
}

#[test]
fn the_image_is_found_by_its_name_and_for_this_machine() {
    let mut place = Place::new();
    let (first, second) = (place.image(&one_file()), place.image(&[]));
    place.layout.add(first.clone(), Some("1")).unwrap();
    assert!(place.choose(None).is_ok());
    assert!(place.choose(Some("1")).is_ok());
    place.layout.add(second.clone(), Some("2")).unwrap();
    expect(place.choose(None), "it has several images");
    expect(place.choose(Some("3")), "no image that is called `3`; it has 1, 2");
    assert_eq!(place.choose(Some("2")).unwrap().digest().to_string(), second["digest"]);

    let mut other = place.layout.image_for("s390x", &[], &[]).unwrap();
    place.layout.add(other.clone(), Some("other")).unwrap();
    expect(place.choose(Some("other")), "but for linux/s390x");
    let mut here = first.clone();
    here["platform"] = json!({ "os": "linux", "architecture": architecture() });
    other["platform"] = json!({ "os": "linux", "architecture": "s390x" });
    let mut note = second.clone();
    note["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    let index = |manifests: Value| json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
    let nested = place.layout.blob(INDEX, index(json!([note, other, here])).as_bytes()).unwrap();
    place.layout.add(nested, Some("nested")).unwrap();
    assert_eq!(place.choose(Some("nested")).unwrap().digest().to_string(), first["digest"]);
    let strange = place.layout.blob(INDEX, index(json!([other])).as_bytes()).unwrap();
    place.layout.add(strange, Some("strange")).unwrap();
    expect(place.choose(Some("strange")), "but for linux/s390x");
    let mut deep = first.clone();
    for _ in 0..6 {
        deep = place.layout.blob(INDEX, index(json!([deep])).as_bytes()).unwrap();
    }
    place.layout.add(deep, Some("deep")).unwrap();
    expect(place.choose(Some("deep")), "indexes in indexes");
}

#[test]
fn a_layout_that_is_none_or_cannot_be_read_is_refused() {
    let place = Place::with(&one_file());
    assert!(Layout::is_one(place.layout.path()) && place.choose(None).is_ok());
    let change = |name: &str, content: &str, problem: &str| {
        let path = place.layout.path().join(name);
        let before = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        expect(place.choose(None), problem);
        fs::write(&path, before).unwrap();
        place.choose(None).unwrap();
    };
    change("oci-layout", r#"{"imageLayoutVersion":"2.0.0"}"#, "version `2.0.0`");
    change("oci-layout", "", "cannot be read");
    change("index.json", "[[[", "cannot be read");
    change("index.json", r#"{"manifests":[]}"#, "no image for linux");
    change("index.json", &" ".repeat(5 << 20), "more than 4194304 bytes");
    for digest in ["sha256:../../../../etc/passwd", "sha512:00", "sha256:", "md5:d41d8cd98f00b204e9800998ecf8427e"] {
        let index = json!({ "manifests": [{ "digest": digest, "size": 1 }] }).to_string();
        change("index.json", &index, "cannot be read");
    }
    let mut other = Place::new();
    let layer = other.layout.blob("application/vnd.example.layer+xz", b"x").unwrap();
    let image = other.layout.image(&[layer], &[]).unwrap();
    other.layout.add(image, None).unwrap();
    expect(other.choose(None), "`application/vnd.example.layer+xz` is not a kind");
    assert!(!Layout::is_one(other.home.path()));
    expect(Layout::open(other.home.path()), "could not read oci-layout");
}

#[tokio::test]
async fn a_second_start_finds_what_the_first_unpacked() {
    let place = Place::with(&one_file());
    let first = place.obtain().await.unwrap();
    let made = fs::metadata(first.root().join("bin/tool")).unwrap().ino();
    let second = place.obtain().await.unwrap();
    assert_eq!(first, second);
    assert_eq!(fs::metadata(second.root().join("bin/tool")).unwrap().ino(), made);
    let digest = place.choose(None).unwrap().digest().clone();
    assert_eq!(find(&place.state(), &digest), Some(first.clone()));
    assert_eq!(place.stored(), [digest.hex()]);
    // Without its mark, with that of another, or open to others it is not believed, and made anew.
    let folder = first.root().parent().unwrap().to_owned();
    let spoil: [&dyn Fn(); 3] = [
        &|| fs::remove_file(folder.join("complete")).unwrap(),
        &|| fs::write(folder.join("complete"), "sha256:0\n").unwrap(),
        &|| fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap(),
    ];
    for spoil in spoil {
        spoil();
        assert_eq!(find(&place.state(), &digest), None);
        let again = place.obtain().await.unwrap();
        assert_eq!(read(again.root(), "bin/tool").as_deref(), Some("1"));
        assert!(find(&place.state(), &digest).is_some());
    }
}

#[tokio::test]
async fn what_a_killed_start_left_is_removed_by_the_next() {
    let place = Place::with(&one_file());
    let left = place.store().join("unfinished/rootfs/deep");
    fs::create_dir_all(&left).unwrap();
    sweep(&place.state()).unwrap();
    assert_eq!(place.stored(), [""; 0]);
    fs::create_dir_all(&left).unwrap();
    let unpacked = place.obtain().await.unwrap();
    assert!(!unpacked.root().join("deep").exists());
    // While somebody is at work, nothing is swept.
    fs::create_dir_all(&left).unwrap();
    let lock = fs::File::open(place.store()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    sweep(&place.state()).unwrap();
    assert!(left.exists());
    drop(lock);
    sweep(&place.state()).unwrap();
    assert!(!left.exists());
    sweep(&StateFolder::prepare(place.home.path().join("empty")).unwrap()).unwrap();
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing_and_two_at_once_unpack_once() {
    let members: Vec<_> = (0..90).map(|number| file(format!("{number}"), "x")).collect();
    let place = Place::with(&[(archive(&members), Packing::Plain)]);
    let mut given_up = Box::pin(place.obtain());
    // It lets others have their turn before it is done.
    assert!(std::future::poll_fn(|context| std::task::Poll::Ready(given_up.as_mut().poll(context).is_pending())).await);
    assert_eq!(place.stored(), ["unfinished"]);
    drop(given_up);
    assert_eq!(place.stored(), [""; 0]);
    let (first, second) = tokio::join!(place.obtain(), place.obtain());
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(place.stored().len(), 1);
}
