//! What of the host's files can be read and written.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence::Guarantee;

use super::limits::marks;
use super::privileges::steals;
use super::{Allowed, Case, Probe, Setting};
use crate::Trouble;
use crate::canary::{FileCanary, secret};
use crate::place::Place;

/// Files that agents, editors and git on the host would obey later.
const OBEYED: [&str; 6] = [
    ".git/hooks/pre-commit",
    ".claude/settings.json",
    ".mcp.json",
    ".vscode/tasks.json",
    ".envrc",
    "deep/er/.git/hooks/post-checkout",
];

pub(super) fn cases() -> Vec<Case> {
    let works = Allowed::Writes("cat note > copy && mv copy copy2 && : > allowed");
    let mode = |mode| Setting { mode, ..Setting::DIRECT };
    let reads = Allowed::PrintsNote("cat note");
    vec![
        Case {
            id: "S02-read-outside",
            guarantee: Guarantee::FsConfined,
            setting: Setting::DIRECT,
            allowed: works,
            forbidden: |place| {
                let (path, secret) = secret_outside(place)?;
                Ok(steals(
                    place,
                    "cat \"$1\" > stolen1; cat \"/proc/self/root$1\" > stolen2; cat ../outside/secret > stolen3",
                    secret,
                )
                .with(path))
            },
        },
        Case {
            id: "F01-write-through-a-link",
            guarantee: Guarantee::FsConfined,
            setting: Setting::DIRECT,
            allowed: works,
            forbidden: |place| {
                let (path, _) = secret_outside(place)?;
                Ok(changes_outside(place, "ln -s \"$1\" link; echo x >> link")?.with(path))
            },
        },
        Case {
            id: "F18-write-outside",
            guarantee: Guarantee::FsConfined,
            setting: Setting::DIRECT,
            allowed: works,
            forbidden: |place| {
                let (path, _) = secret_outside(place)?;
                Ok(changes_outside(place, "echo x > \"$1\"; echo x > ../outside/new; rm -f \"$1\"")?.with(path))
            },
        },
        Case {
            id: "S02-denied-file",
            guarantee: Guarantee::FsDeny,
            setting: Setting { fs: ", deny: [\"**/.env\"]", ..Setting::DIRECT },
            allowed: works,
            forbidden: |place| {
                let secret = secret()?;
                place.write(".env", &secret)?;
                let script = "cat .env > stolen1; ln .env stolen2; cp .env stolen3; ln -s .env link; cat link > stolen4; mv .env stolen5";
                Ok(steals(place, script, secret))
            },
        },
        Case {
            id: "F11-another-name-of-a-denied-file",
            guarantee: Guarantee::FsDeny,
            setting: Setting { fs: ", deny: [\"**/.env\"]", ..Setting::DIRECT },
            allowed: works,
            forbidden: |place| {
                let secret = secret()?;
                place.write(".env", &secret)?;
                let workspace = place.workspace();
                fs::hard_link(workspace.join(".env"), workspace.join("notes")).map_err(Trouble::io("link a file"))?;
                Ok(steals(place, "cat notes > stolen1; cp notes stolen2; ln notes stolen3; mv notes stolen4", secret))
            },
        },
        Case {
            id: "F06-make-a-file-that-the-host-obeys",
            guarantee: Guarantee::FsProtect,
            setting: Setting::DIRECT,
            allowed: works,
            forbidden: |place| {
                let script = OBEYED.map(|name| format!("mkdir -p \"$(dirname {name})\"; echo x > {name}")).join("; ");
                Ok(leaves(place, script))
            },
        },
        Case {
            id: "F04-move-the-folder-of-the-hooks",
            guarantee: Guarantee::FsProtect,
            setting: Setting::DIRECT,
            allowed: works,
            forbidden: |place| {
                place.write(".git/hooks/sample", "sample")?;
                Ok(leaves(place, "mv .git .g2; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit"))
            },
        },
        Case {
            id: "S07-read-only-workspace",
            guarantee: Guarantee::FsWorkspaceMode,
            setting: mode("read-only"),
            allowed: reads,
            forbidden: changes_workspace,
        },
        Case {
            id: "S07-ephemeral-workspace",
            guarantee: Guarantee::FsWorkspaceMode,
            setting: mode("ephemeral"),
            allowed: Allowed::Prints("echo made > mine; cat mine", "made"),
            forbidden: changes_workspace,
        },
        Case {
            id: "S07-workspace-under-review",
            guarantee: Guarantee::FsWorkspaceMode,
            setting: mode("review"),
            allowed: reads,
            forbidden: changes_workspace,
        },
        Case {
            id: "R03-fill-the-workspace",
            guarantee: Guarantee::FsQuota,
            setting: Setting { fs: ", size: 16MiB", ..Setting::DIRECT },
            allowed: Allowed::Writes("head -c 1000000 /dev/zero > some && : > allowed"),
            forbidden: |place| {
                // In several files, so that no limit on one file hides a missing quota.
                let script = "for n in 1 2 3 4 5 6; do head -c 8000000 /dev/zero > big$n || exit; done; \
                              [ \"$(cat big* | wc -c)\" = 48000000 ] && : > reached";
                Ok(marks(place, script))
            },
        },
    ]
}

fn secret_outside(place: &Place) -> Result<(String, String), Trouble> {
    let secret = secret()?;
    let path = place.outside().join("secret");
    let failed = || format!("write {}", path.display());
    fs::write(&path, &secret).map_err(Trouble::io(failed()))?;
    // Open to everybody: what keeps it must be the wall, not the host's own permissions.
    for (open, mode) in [(place.outside(), 0o777), (path.clone(), 0o666)] {
        fs::set_permissions(open, fs::Permissions::from_mode(mode)).map_err(Trouble::io(failed()))?;
    }
    Ok((path.to_string_lossy().into_owned(), secret))
}

fn changes_outside(place: &Place, script: &str) -> Result<Probe, Trouble> {
    let canary = FileCanary::set(place.outside())?;
    Ok(Probe::new(script, move |_| canary.change()))
}

fn changes_workspace(place: &Place) -> Result<Probe, Trouble> {
    place.write("note", "as it was")?;
    let canary = FileCanary::set(place.workspace())?;
    Ok(Probe::new("echo x > note; echo x > new; mkdir folder", move |_| canary.change()))
}

fn leaves(place: &Place, script: impl Into<String>) -> Probe {
    let workspace = place.workspace();
    Probe::new(script, move |_| {
        let made = OBEYED.into_iter().find(|name| workspace.join(name).exists());
        Ok(made.map(|name| format!("{name} was made")))
    })
}
