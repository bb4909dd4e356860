//! Certificates that programs inside need, where they look for them. No key is ever among them.

use std::path::{Path, PathBuf};

use ringfence_linux::wall::Entry;

use super::image::Root;
use crate::way_out::{BUNDLE, JAVA_STORE, JAVA_SYSTEM_STORE, SYSTEM_BUNDLES, WayOut};

/// Files for programs that are told by a variable, and the same over those of the system.
pub(super) fn entries(way_out: Option<&WayOut>, root: Option<&Root>) -> Vec<Entry> {
    let Some(trust) = way_out.and_then(WayOut::trust) else { return Vec::new() };
    let file = |at: &str, content: &[u8]| Entry::File { at: at.into(), content: content.to_vec() };
    let mut entries = vec![file(BUNDLE, &trust.bundle), file(JAVA_STORE, &trust.java)];
    match root {
        None => {
            let again = |from: &str, at: PathBuf| Entry::Again { from: from.into(), at };
            let mut bundles: Vec<PathBuf> = SYSTEM_BUNDLES.into_iter().filter_map(shown).collect();
            bundles.sort_unstable();
            bundles.dedup();
            entries.extend(bundles.into_iter().map(|at| again(BUNDLE, at)));
            entries.extend(shown(JAVA_SYSTEM_STORE).map(|at| again(JAVA_STORE, at)));
        }
        // Where an image stands inside, what is ours takes the place of what it has.
        Some(root) => {
            let there = |at: &&str| root.has_plain_file(Path::new(at));
            entries.extend(SYSTEM_BUNDLES.into_iter().filter(there).map(|at| file(at, &trust.bundle)));
            entries.extend(Some(JAVA_SYSTEM_STORE).filter(there).map(|at| file(at, &trust.java)));
        }
    }
    entries
}

/// Where a file of the host is that the view shows, without links: those are not followed when something is laid over it.
fn shown(path: &str) -> Option<PathBuf> {
    const SHOWN: [&str; 4] = ["/usr", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"];
    let real = Path::new(path).canonicalize().ok().filter(|real| real.is_file())?;
    SHOWN.iter().any(|folder| real.starts_with(folder)).then_some(real)
}
