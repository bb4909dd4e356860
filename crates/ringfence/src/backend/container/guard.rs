//! Looks at finished options again, without knowing how they were made: what is not on the list is not sent. One mistake in
//! `spec.rs` is then a refusal and not an open door.

use bollard::models::ContainerCreateBody;
use serde_json::Value;

/// The only setting of a kernel that a container is made with: of its own network, in which there is nothing but its loopback.
pub(super) const PORTS_FROM: &str = "net.ipv4.ip_unprivileged_port_start";

/// Options that are not a wall's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}")]
pub(crate) struct Violation {
    /// Which option.
    pub(crate) key: String,
    /// What it is, shortened.
    pub(crate) value: String,
}

/// Whether every option is one that a wall has.
pub(super) fn check(body: &ContainerCreateBody) -> Result<(), Violation> {
    let body =
        serde_json::to_value(body).map_err(|error| Violation { key: "body".to_owned(), value: error.to_string() })?;
    check_keys(&body, "", is_permitted)?;
    let required = [
        ("User", ""),
        ("Image", ""),
        ("Entrypoint", ""),
        ("Healthcheck", ""),
        ("WorkingDir", ""),
        ("HostConfig", "NetworkMode"),
        ("HostConfig", "CapDrop"),
        ("HostConfig", "SecurityOpt"),
        ("HostConfig", "ReadonlyRootfs"),
        ("HostConfig", "IpcMode"),
        ("HostConfig", "CgroupnsMode"),
        ("HostConfig", "Ulimits"),
        ("HostConfig", "AutoRemove"),
        ("HostConfig", "LogConfig"),
        ("HostConfig", "ShmSize"),
        ("HostConfig", "Init"),
        ("HostConfig", "RestartPolicy"),
    ];
    for (outer, inner) in required {
        let found = if inner.is_empty() { body.get(outer) } else { body.get(outer).and_then(|outer| outer.get(inner)) };
        if found.is_none_or(Value::is_null) {
            return Err(Violation { key: format!("{outer}.{inner}"), value: "missing".to_owned() });
        }
    }
    let host = &body["HostConfig"];
    if host["Memory"] != host["MemorySwap"] {
        return Err(violation("MemorySwap", &host["MemorySwap"]));
    }
    Ok(())
}

fn violation(key: &str, value: &Value) -> Violation {
    let text = value.to_string();
    Violation { key: key.to_owned(), value: text.chars().take(120).collect() }
}

fn check_keys(value: &Value, prefix: &str, permitted: fn(&str, &Value) -> bool) -> Result<(), Violation> {
    let Value::Object(entries) = value else {
        return Err(violation(prefix, value));
    };
    for (key, value) in entries {
        let key = format!("{prefix}{key}");
        if !permitted(&key, value) {
            return Err(violation(&key, value));
        }
    }
    Ok(())
}

fn is_permitted(key: &str, value: &Value) -> bool {
    let is_text = |check: &dyn Fn(&str) -> bool| value.as_str().is_some_and(check);
    let all_texts = |check: &dyn Fn(&str) -> bool| {
        value.as_array().is_some_and(|values| values.iter().all(|value| value.as_str().is_some_and(check)))
    };
    match key {
        "Image" => is_text(&|id| id.len() == 71 && id.starts_with("sha256:")),
        "User" => is_text(&|user| {
            let number = |text: &str| text.parse::<u32>().is_ok_and(|number| number != 0);
            user.split_once(':').is_some_and(|(uid, gid)| number(uid) && number(gid))
        }),
        "Hostname" => is_text(&|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')),
        "Env" => all_texts(&|text| text.ends_with('=') && text.matches('=').count() == 1),
        "Entrypoint" | "Cmd" => all_texts(&|_| true),
        "WorkingDir" => value == "/",
        "Labels" => value.as_object().is_some_and(|labels| labels.keys().all(|key| key.starts_with("dev.ringfence."))),
        "AttachStdin" | "AttachStdout" | "AttachStderr" | "OpenStdin" | "StdinOnce" | "NetworkDisabled" => {
            value == true
        }
        "Tty" => value == false,
        "Healthcheck" => *value == serde_json::json!({ "Test": ["NONE"] }),
        "StopSignal" => value == "SIGKILL",
        "HostConfig" => check_keys(value, "HostConfig.", is_permitted_for_host).is_ok(),
        _ => false,
    }
}

fn is_permitted_for_host(key: &str, value: &Value) -> bool {
    let positive = || value.as_i64().is_some_and(|number| number > 0);
    match key.trim_start_matches("HostConfig.") {
        "NetworkMode" => value == "none",
        "IpcMode" | "CgroupnsMode" => value == "private",
        "PidMode" | "UTSMode" => value == "",
        "CapDrop" => *value == serde_json::json!(["ALL"]),
        "SecurityOpt" => value.as_array().is_some_and(|options| {
            options.first().is_some_and(|first| first == "no-new-privileges")
                && options[1..].iter().all(|option| {
                    let json = option.as_str().and_then(|option| option.strip_prefix("seccomp="));
                    let is_filter =
                        json.is_some_and(|json| json.starts_with('{') && serde_json::from_str::<Value>(json).is_ok());
                    is_filter || option == "mask=/sys/fs/cgroup"
                })
                && options.len() <= 2
        }),
        // Instead of the engine's own list, so it must have what that has.
        "MaskedPaths" => value.as_array().is_some_and(|paths| {
            let hides = |path: &str| paths.iter().any(|hidden| hidden == path);
            let proc = ["acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list"];
            proc.iter().all(|name| hides(&format!("/proc/{name}"))) && hides("/sys/firmware")
        }),
        "ReadonlyRootfs" | "AutoRemove" => value == true,
        "Privileged" | "Init" => value == false,
        "LogConfig" => *value == serde_json::json!({ "Type": "none" }),
        "RestartPolicy" => *value == serde_json::json!({ "Name": "no" }),
        "Memory" | "MemorySwap" | "NanoCpus" | "PidsLimit" | "OomScoreAdj" | "ShmSize" => positive(),
        "Ulimits" => value.as_array().is_some_and(|limits| {
            limits.iter().all(|limit| {
                matches!(limit["Name"].as_str(), Some("core" | "nofile" | "fsize" | "nproc"))
                    && limit["Soft"] == limit["Hard"]
            })
        }),
        "Tmpfs" => value.as_object().is_some_and(|all| all.iter().all(|(at, options)| is_tmpfs(at, options))),
        "Sysctls" => value.as_object().is_some_and(|settings| {
            let is_port = |value: &Value| value.as_str().is_some_and(|port| port.parse::<u16>().is_ok());
            settings.iter().all(|(name, value)| name == PORTS_FROM && is_port(value))
        }),
        "Mounts" => value.as_array().is_some_and(|mounts| mounts.iter().all(is_mount)),
        "Runtime" => value
            .as_str()
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))),
        _ => false,
    }
}

fn is_tmpfs(at: &str, options: &Value) -> bool {
    let known = |option: &str| match option.split_once('=') {
        Some(("size" | "nr_inodes" | "uid" | "gid", number)) => number.parse::<u64>().is_ok(),
        Some(("mode", mode)) => matches!(mode, "0700" | "0755" | "1777"),
        Some(_) => false,
        None => matches!(option, "rw" | "nosuid" | "nodev" | "exec" | "noexec" | "notmpcopyup"),
    };
    let Some(options) = options.as_str() else { return false };
    let has = |wanted: &str| options.split(',').any(|option| option == wanted);
    let limited = options.split(',').any(|option| option.strip_prefix("size=").is_some_and(|size| size != "0"));
    at.starts_with('/')
        && !at.contains(':')
        && options.split(',').all(known)
        && has("nosuid")
        && has("nodev")
        && limited
}

fn is_mount(mount: &Value) -> bool {
    let Value::Object(fields) = mount else { return false };
    let is_known = |key: &String| {
        matches!(
            key.as_str(),
            "Type" | "Source" | "Target" | "ReadOnly" | "BindOptions" | "VolumeOptions" | "TmpfsOptions"
        )
    };
    let target = mount["Target"].as_str().unwrap_or_default();
    let kind_fits = match mount["Type"].as_str() {
        Some("bind") => {
            let recursion = &mount["BindOptions"];
            mount["Source"].as_str().is_some_and(|source| source.starts_with('/') && source != "/")
                && recursion["NonRecursive"] == true
                && recursion["Propagation"] == "rprivate"
        }
        Some("volume") => {
            mount["Source"].as_str().is_some_and(|source| source.starts_with("ringfence-"))
                && mount["VolumeOptions"] == serde_json::json!({ "NoCopy": true })
        }
        Some("tmpfs") => mount["TmpfsOptions"] == serde_json::json!({ "SizeBytes": 4096, "Mode": 0o555 }),
        _ => false,
    };
    let covers = ["/proc", "/sys", "/dev"].iter().any(|folder| std::path::Path::new(target).starts_with(folder));
    fields.keys().all(is_known)
        && mount["ReadOnly"] == true
        && target.starts_with('/')
        && target != "/"
        && !covers
        && kind_fits
}
