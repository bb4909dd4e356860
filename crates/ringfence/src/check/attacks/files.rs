//! What of the host's files can be read, changed or made.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ringfence_policy::{BackendKind, Bytes, ResolvedPolicy, WorkspaceMode};

use super::super::CheckError;
use super::super::arena::{Field, remove_if_there};
use super::super::attack::{Attack, Control, Found, Probe};
use super::super::host::{Nap, Tree, odd_file, secret};
use crate::Guarantee;
use crate::backend::container::has_own_kernel;

/// What is shown of the quota that an attack tries to fill.
const QUOTA: u64 = 8 << 20;
/// More than that.
const FILL: u64 = 24 << 20;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        id: "S02-read",
        guarantee: Guarantee::FsConfined,
        tries: "read a file of the host that all may read",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let (path, secret) = secret_outside(field)?;
            let script = "cat \"$1\" ../outside/secret \"$PWD/../outside/secret\"";
            Ok(Probe::for_secret(script, secret).with(text(&path)))
        },
    },
    Attack {
        id: "F13-proc",
        guarantee: Guarantee::FsConfined,
        tries: "read a file of the host by links in /proc",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let (path, secret) = secret_outside(field)?;
            let script = "for process in 1 self thread-self $PPID $$; do
                cat \"/proc/$process/root$1\" \"/proc/$process/cwd/../outside/secret\"; done";
            Ok(Probe::for_secret(script, secret).with(text(&path)))
        },
    },
    Attack {
        id: "F01-link",
        guarantee: Guarantee::FsConfined,
        tries: "change a host's file by a link to it",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let (path, _) = secret_outside(field)?;
            let link = field.workspace().join("link");
            symlink(&path, &link).map_err(CheckError::io(format!("make {}", link.display())))?;
            let tree = Tree::remember(field.outside())?;
            Ok(Probe::for_change("(echo x >> link); (echo x >> \"$1\")", tree).with(text(&path)))
        },
    },
    Attack {
        id: "F18-outside",
        guarantee: Guarantee::FsConfined,
        tries: "make a file beside the workspace",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let open = field.make_open()?;
            let tree = Tree::remember(field.outside())?;
            let script = "(echo x > \"$1/made\"); (echo x > ../outside/open/made)";
            Ok(Probe::for_change(script, tree).with(text(&open)))
        },
    },
    Attack {
        id: "S07-state",
        guarantee: Guarantee::FsConfined,
        tries: "make a file beside our ledger",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let canary = field.canary()?;
            let path = text(&canary);
            Ok(Probe::new("(echo x > \"$1\")", move |_| {
                Ok(Found::when(remove_if_there(&canary)?, "a file was made where the ledger is"))
            })
            .with(path))
        },
    },
    Attack {
        id: "N15-kernel-files",
        guarantee: Guarantee::FsConfined,
        tries: "find the kernel's log, memory or disks, or write to the kernel's files",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, policy, wall| {
            Ok(Probe::for_nap(
                kernel_files(policy, wall),
                Nap::until_seen()?,
                "devices of the machine or files of the kernel are there, or its files can be written",
            ))
        },
    },
    Attack {
        id: "S01-host-name",
        guarantee: Guarantee::FsConfined,
        tries: "learn the name of the machine",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Ok(Probe::new("uname -n; cat /proc/sys/kernel/hostname /etc/hostname", move |ended| {
                let told = ended.outcome.stdout.lines().any(|line| line == name);
                Ok(Found::when(told, "the host's name came out"))
            }))
        },
    },
    Attack {
        id: "S02-denied",
        guarantee: Guarantee::FsDeny,
        tries: "read a denied file, also by another name",
        control: Control::WithoutWall,
        needs: &[],
        applies: |policy| policy.fs.deny.iter().any(|glob| glob.value.as_str() == "**/.env"),
        set: |field, _, _| {
            let secret = secret()?;
            field.write(&field.workspace().join(".env"), &secret)?;
            let script = "cat .env; (ln .env other && cat other); (ln -s .env link && cat link); (mv .env moved && cat moved); cat ./*";
            Ok(Probe::for_secret(script, secret))
        },
    },
    Attack {
        id: "F06-obeyed",
        guarantee: Guarantee::FsProtect,
        tries: "make git hooks and settings that hosts obey",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let tree = Tree::remember(field.workspace())?;
            let script = "for name in .git/hooks/pre-commit .claude/settings.json .mcp.json .vscode/tasks.json .envrc \
                sandbox.policy.yaml; do (mkdir -p \"$(dirname $name)\"; echo x > $name); done";
            Ok(Probe::for_change(script, tree))
        },
    },
    Attack {
        id: "F17-set-id",
        guarantee: Guarantee::FsProtect,
        tries: "leave a file that makes others somebody else, a device or a pipe",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |field, _, _| {
            let workspace = field.workspace();
            let script = "(: > set-id); chmod 6755 set-id; mkfifo pipe; mknod device c 1 3";
            Ok(Probe::new(script, move |_| Ok(odd_file(&workspace)?.map_or(Found::Stopped, Found::GotThrough))))
        },
    },
    Attack {
        id: "F21-workspace",
        guarantee: Guarantee::FsWorkspaceMode,
        tries: "change, remove and add files in the workspace",
        control: Control::WithoutWall,
        needs: &[],
        applies: |policy| policy.fs.mode.value != WorkspaceMode::Direct,
        set: |field, _, _| {
            for name in ["changed", "removed"] {
                field.write(&field.workspace().join(name), "as it was")?;
            }
            let tree = Tree::remember(field.workspace())?;
            Ok(Probe::for_change("(echo x > changed); rm -f removed; (echo x > added)", tree))
        },
    },
    Attack {
        id: "F10-hard-link",
        guarantee: Guarantee::FsWorkspaceMode,
        tries: "change a file that may only be read, by another name of it",
        control: Control::WithoutWall,
        needs: &[],
        // Its own workspace has nothing of the host's.
        applies: |policy| policy.fs.mode.value != WorkspaceMode::Ephemeral,
        set: |field, _, _| {
            field.write(&field.workspace().join("read"), "as it was")?;
            let tree = Tree::remember(field.workspace())?;
            let script = "for place in /tmp /dev/shm .; do
                (ln read \"$place/$1\" && echo x >> \"$place/$1\"); rm -f \"$place/$1\"; done";
            let mut probe = Probe::for_change(script, tree).with(secret()?);
            probe.limits.fs.mode = Some(WorkspaceMode::ReadOnly);
            Ok(probe)
        },
    },
    Attack {
        id: "R03-fill",
        guarantee: Guarantee::FsQuota,
        tries: "write 24MiB where 8MiB may be written",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, policy, _| {
            let most = policy.fs.size.value.get().min(QUOTA);
            let script = format!(
                "[ -w . ] || cd \"$HOME\"
                (head -c {FILL} /dev/zero > fill); sleep $1; rm -f fill"
            );
            let mut probe = Probe::new(script, move |ended| {
                let Some(look) = &ended.seen.look else {
                    return Ok(Found::Unclear("the host did not see the probe".to_owned()));
                };
                match look.filled {
                    0 => Ok(Found::Unclear("the host saw nothing that was written".to_owned())),
                    filled => Ok(Found::when(filled > most, format!("{filled} bytes were written"))),
                }
            })
            .napping(Nap::until_seen()?);
            probe.limits.fs.size = Some(Bytes::new(most));
            Ok(probe)
        },
    },
];

/// A file that no policy shows and everybody may read and write, and the secret in it.
fn secret_outside(field: &Field) -> Result<(PathBuf, String), CheckError> {
    let (path, secret) = (field.outside().join("secret"), secret()?);
    field.write(&path, &secret)?;
    Ok((path, secret))
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A probe that sleeps when something of the kernel's is there that should not be.
fn kernel_files(policy: &ResolvedPolicy, wall: BackendKind) -> String {
    let devices = "for file in /dev/kmsg /dev/mem /dev/port /dev/sda /dev/vda; do
        if [ -e $file ]; then sleep $1; exit; fi; done\n";
    let written =
        "for file in /sys/kernel /sys/kernel/* /sys/fs/cgroup /sys/fs/cgroup/* /sys/fs/cgroup/*/release_agent \\
        /sys/fs/cgroup/*/cgroup.procs /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sysrq-trigger; do
        if [ -w $file ]; then sleep $1; exit; fi; done\n";
    let mounted = writable_mounts("/proc/self/mounts");
    let own = match wall {
        // Its own place has nothing of it.
        BackendKind::Native => format!(
            "for file in /sys/kernel /sys/fs/cgroup; do if [ -e $file ]; then sleep $1; exit; fi; done\n{mounted}"
        ),
        // A container shows what cgroups say, and not to be written by anybody. Whose files they are is no wall.
        BackendKind::Docker | BackendKind::Podman | BackendKind::Microvm | BackendKind::Kubernetes => {
            let runtime = policy.backend.runtime.as_ref().map_or("", |runtime| runtime.value.as_str());
            // Those of a kernel of its own are its own.
            if has_own_kernel(runtime) { mounted } else { mounted + WRITABLE_SETTINGS }
        }
        // They show the host's own mounts, whatever they let programs do there.
        BackendKind::Landlock | BackendKind::Spawn | BackendKind::None => String::new(),
    };
    format!("{devices}{written}{own}")
}

/// Sleeps when a file system of the kernel's is mounted to be written. One whose mounts cannot be read does not come to its end.
fn writable_mounts(list: &str) -> String {
    format!(
        "root= settings=rw
        while read -r from at kind how rest; do
            case $at in
                /) root=seen ;;
                /proc | /proc/sys) case ,$how, in *,ro,*) settings=ro ;; *) settings=rw ;; esac ;;
            esac
            case $kind in
                sysfs | cgroup* | debugfs | tracefs | securityfs | bpf)
                    case ,$how, in *,ro,*) ;; *) sleep $1; exit ;; esac ;;
            esac
        done < {list}
        [ \"$root\" ] || exit\n"
    )
}

/// Sleeps when the kernel's settings were not among what is mounted to be read only.
const WRITABLE_SETTINGS: &str = "if [ -e /proc/sys ] && [ $settings = rw ]; then sleep $1; exit; fi";

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// As Docker mounts them.
    const CONTAINER: &str = "overlay / overlay ro,relatime 0 0
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
sysfs /sys sysfs ro,nosuid,nodev,noexec,relatime 0 0
tmpfs /sys/fs/cgroup tmpfs rw,nosuid,nodev,noexec,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/pids cgroup ro,nosuid,nodev,noexec,relatime,pids 0 0
proc /proc/sys proc ro,nosuid,nodev,noexec,relatime 0 0
tmpfs /work tmpfs rw,nosuid,nodev,relatime,size=65536k 0 0
";

    /// What a probe does that finds these mounts.
    fn found(mounts: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("mounts");
        std::fs::write(&list, mounts).unwrap();
        let script = format!(
            "sleep() {{ echo slept; }}\n{}\necho end",
            writable_mounts(list.to_str().unwrap()) + WRITABLE_SETTINGS
        );
        let ended = Command::new("sh").args(["-c", &script, "sh", "3"]).output().unwrap();
        String::from_utf8(ended.stdout).unwrap()
    }

    #[test]
    fn n15_a_kernels_file_system_that_is_mounted_to_be_written_is_found_whoever_owns_its_files() {
        assert_eq!(found(CONTAINER), "end\n", "the twin: a container as it should be");
        for (had, has) in [
            ("/sys sysfs ro,", "/sys sysfs rw,"),
            ("cgroup ro,", "cgroup rw,"),
            ("/proc/sys proc ro,", "/proc/sys proc rw,"),
            ("proc /proc/sys proc ro,nosuid,nodev,noexec,relatime 0 0\n", ""),
            ("tmpfs /work tmpfs", "proc /proc/sys proc"),
            ("tmpfs /work tmpfs", "host /work sysfs"),
            ("tmpfs /work tmpfs", "host /work cgroup2"),
            ("tmpfs /work tmpfs", "host /work debugfs"),
            ("tmpfs /work tmpfs", "host /work tracefs"),
            ("tmpfs /work tmpfs", "host /work securityfs"),
            ("tmpfs /work tmpfs", "host /work bpf"),
        ] {
            let mounts = CONTAINER.replace(had, has);
            assert_ne!(mounts, CONTAINER, "{had}");
            assert_eq!(found(&mounts), "slept\n", "{has}");
        }
        assert_eq!(found(""), "", "one that sees no mounts does not come to its end");
    }
}
