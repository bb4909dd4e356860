//! Every option in the open, and what must not become one.

use proptest::prelude::*;

use super::*;

pub(in crate::backend::container) fn spec() -> Spec {
    Spec {
        image: ImageId::parse(&"a".repeat(64)).unwrap(),
        image_variables: vec!["PATH".into(), "LD_PRELOAD".into()],
        image_volumes: vec!["/data".into(), "/tmp".into()],
        user: User { uid: 1000, gid: 1001 },
        guest: GuestFrom::File("/opt/ringfence/bin/ringfence".into()),
        guest_at: GuestPlace::fixed(),
        tmpfs: vec![
            Tmpfs { at: "/work".into(), bytes: 512 << 20, files: 100_000, whose: TmpfsOwner::User },
            Tmpfs { at: "/tmp".into(), bytes: 64 << 20, files: 10_000, whose: TmpfsOwner::Everybody },
        ],
        binds: vec![ReadOnlyBind { host: "/srv/deps".into(), at: "/deps".into() }],
        volumes: Vec::new(),
        memory_bytes: Some(512 << 20),
        nano_cpus: Some(1_500_000_000),
        processes: Some(256),
        open_files: 1024,
        file_size: Some(1 << 30),
        shared_memory_bytes: 16 << 20,
        seccomp: Some(r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#.into()),
        cgroups: CgroupView::Own,
        runtime: Some("runsc".into()),
        labels: Labels::fixed(),
        hostname: "sandbox".into(),
        ports_from: Some(53),
        engine_socket: Some("/somewhere/engine.sock".into()),
    }
}

fn shown(kind: EngineKind, spec: &Spec) -> serde_json::Value {
    serde_json::to_value(spec.body(kind).unwrap()).unwrap()
}

#[test]
fn the_whole_of_a_container_for_docker() {
    insta::assert_json_snapshot!(shown(EngineKind::Docker, &spec()));
}

#[test]
fn the_whole_of_a_container_for_podman() {
    let spec = Spec { seccomp: None, runtime: None, guest: GuestFrom::Volume("ringfence-guest-0".into()), ..spec() };
    insta::assert_json_snapshot!(shown(EngineKind::Podman, &spec));
}

#[test]
fn cgroups_that_are_not_the_containers_own_are_hidden_and_all_else_that_an_engine_hides_stays_so() {
    let hidden = Spec { seccomp: None, cgroups: CgroupView::Nothing, ..spec() };
    let shown_to = |kind, spec: &Spec| shown(kind, spec)["HostConfig"].clone();
    let docker = shown_to(EngineKind::Docker, &hidden);
    let hides = |path: &str| docker["MaskedPaths"].as_array().unwrap().iter().any(|hidden| hidden == path);
    assert!(hides("/sys/fs/cgroup") && hides("/proc/kcore") && hides("/sys/firmware"), "{docker}");
    assert_eq!(docker["SecurityOpt"], serde_json::json!(["no-new-privileges"]));
    let podman = shown_to(EngineKind::Podman, &hidden);
    assert_eq!(podman["SecurityOpt"], serde_json::json!(["no-new-privileges", "mask=/sys/fs/cgroup"]));
    assert!(podman["MaskedPaths"].is_null(), "{podman}");
    for kind in [EngineKind::Docker, EngineKind::Podman] {
        let open = shown_to(kind, &Spec { seccomp: None, ..spec() });
        assert_eq!(open["SecurityOpt"], serde_json::json!(["no-new-privileges"]));
        assert!(open["MaskedPaths"].is_null(), "{open}");
    }
}

#[test]
fn what_would_open_the_wall_is_not_made() {
    let refused = |change: &dyn Fn(&mut Spec)| {
        let mut spec = spec();
        change(&mut spec);
        spec.body(EngineKind::Docker).map(|_| ()).unwrap_err()
    };
    assert_eq!(spec().body(EngineKind::Docker).map(|_| ()), Ok(()));
    assert_eq!(refused(&|spec| spec.user.uid = 0), SpecError::Root);
    assert_eq!(refused(&|spec| spec.user.gid = 0), SpecError::Root);
    let values: [&dyn Fn(&mut Spec); 14] = [
        &|spec| spec.memory_bytes = Some(0),
        &|spec| spec.memory_bytes = Some(u64::MAX),
        &|spec| spec.nano_cpus = Some(0),
        &|spec| spec.processes = Some(0),
        &|spec| spec.open_files = 0,
        &|spec| spec.file_size = Some(0),
        &|spec| spec.shared_memory_bytes = 0,
        &|spec| spec.hostname = String::new(),
        &|spec| spec.hostname = "a b".into(),
        &|spec| spec.runtime = Some("../x".into()),
        &|spec| spec.seccomp = Some("unconfined".into()),
        &|spec| spec.image_variables = vec!["A=b".into()],
        &|spec| spec.image_variables = vec![String::new()],
        &|spec| spec.guest = GuestFrom::Volume("somebodys".into()),
    ];
    for change in values {
        assert!(matches!(refused(change), SpecError::Value { .. }), "{:?}", refused(change));
    }
    let paths: [&dyn Fn(&mut Spec); 7] = [
        &|spec| spec.tmpfs[0].bytes = 0,
        &|spec| spec.tmpfs[0].files = 0,
        &|spec| spec.tmpfs[1].at = "/work".into(),
        &|spec| spec.binds[0].at = "/work".into(),
        &|spec| spec.image_volumes = vec!["/proc/x".into()],
        &|spec| spec.image_volumes = vec!["relative".into()],
        &|spec| spec.image_volumes = vec!["/a/../b".into()],
    ];
    for change in paths {
        assert!(matches!(refused(change), SpecError::Path { .. }), "{:?}", refused(change));
    }
}

#[test]
fn the_way_to_an_engine_is_never_mounted() {
    let with = |host: &str| {
        let binds = vec![ReadOnlyBind { host: host.into(), at: "/x".into() }];
        Spec { binds, ..spec() }.body(EngineKind::Docker).map(|_| ())
    };
    for hostile in [
        "/",
        "/run",
        "/var",
        "/var/run",
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/podman",
        "/run/containerd",
        "/somewhere",
        "/somewhere/engine.sock",
        "/home/me/docker.sock",
    ] {
        assert!(matches!(with(hostile), Err(SpecError::Path { .. })), "{hostile}");
    }
    for good in ["/srv", "/var/lib/deps", "/somewhere-else", "/run/user/1000/deps", "/home/me"] {
        assert_eq!(with(good), Ok(()), "{good}");
    }
}

#[test]
fn nothing_is_mounted_over_the_kernels_files_or_the_guest() {
    let with = |at: &str| {
        let binds = vec![ReadOnlyBind { host: "/srv/deps".into(), at: at.into() }];
        Spec { binds, ..spec() }.body(EngineKind::Docker).map(|_| ())
    };
    for hostile in [
        "/",
        "/proc",
        "/proc/sys",
        "/sys/fs/cgroup",
        "/dev/kvm",
        "/.ringfence-0",
        "/.ringfence-x/guest",
        "x",
        "/a/",
        "/a//b",
        "/./a",
        "/a/.",
        "/a/../b",
        "",
    ] {
        assert!(matches!(with(hostile), Err(SpecError::Path { .. })), "{hostile}");
    }
    for good in ["/a", "/a:b", "/a,b", "/processes", "/run/x", "/ä ö"] {
        assert_eq!(with(good), Ok(()), "{good}");
    }
}

#[test]
fn the_guard_refuses_every_option_that_opens_a_wall() {
    let check = |key: &str, value: serde_json::Value| {
        let mut body = shown(EngineKind::Docker, &spec());
        let target = match key.strip_prefix("HostConfig.") {
            Some(key) => &mut body["HostConfig"][key],
            None => &mut body[key],
        };
        *target = value;
        let body: ContainerCreateBody = serde_json::from_value(body).unwrap();
        assert!(guard::check(&body).is_err(), "{key}");
    };
    use serde_json::json;
    check("User", json!("0:0"));
    check("User", json!("root"));
    check("Image", json!("debian:12"));
    check("Env", json!(["A=b"]));
    check("Env", json!(["A"]));
    check("WorkingDir", json!("/x"));
    check("Tty", json!(true));
    check("Volumes", json!({ "/x": {} }));
    check("ExposedPorts", json!({ "80/tcp": {} }));
    check("Healthcheck", json!({ "Test": ["CMD", "x"] }));
    check("Labels", json!({ "com.other": "x" }));
    check("StdinOnce", json!(false));
    check("NetworkingConfig", json!({ "EndpointsConfig": { "host": {} } }));
    for (key, value) in [
        ("Privileged", json!(true)),
        ("NetworkMode", json!("host")),
        ("NetworkMode", json!(null)),
        ("IpcMode", json!("host")),
        ("PidMode", json!("host")),
        ("UTSMode", json!("host")),
        ("UsernsMode", json!("host")),
        ("CgroupnsMode", json!("host")),
        ("CgroupParent", json!("/")),
        ("CapAdd", json!(["SYS_ADMIN"])),
        ("CapDrop", json!([])),
        ("CapDrop", json!(null)),
        ("SecurityOpt", json!(["no-new-privileges", "seccomp=unconfined"])),
        ("SecurityOpt", json!(["seccomp={}"])),
        ("SecurityOpt", json!(["no-new-privileges", "apparmor=unconfined"])),
        ("SecurityOpt", json!(["no-new-privileges", "systempaths=unconfined"])),
        ("SecurityOpt", json!(["no-new-privileges", "unmask=ALL"])),
        ("SecurityOpt", json!(["no-new-privileges", "mask=/sys/fs/cgroup:unmask=/proc/kcore"])),
        ("MaskedPaths", json!([])),
        ("MaskedPaths", json!(["/sys/fs/cgroup"])),
        ("ReadonlyPaths", json!([])),
        ("ReadonlyRootfs", json!(false)),
        ("Binds", json!(["/:/host"])),
        ("VolumesFrom", json!(["x"])),
        ("Devices", json!([{ "PathOnHost": "/dev/sda" }])),
        ("DeviceCgroupRules", json!(["a *:* rwm"])),
        ("DeviceRequests", json!([{ "Driver": "nvidia" }])),
        ("Sysctls", json!({ "net.ipv4.ip_forward": "1" })),
        ("Sysctls", json!({ "net.ipv4.ip_unprivileged_port_start": "53", "kernel.msgmax": "1" })),
        ("Sysctls", json!({ "net.ipv4.ip_unprivileged_port_start": "53 1" })),
        ("GroupAdd", json!(["0"])),
        ("Memory", json!(0)),
        ("MemorySwap", json!(-1)),
        ("MemorySwap", json!(1_i64 << 40)),
        ("PidsLimit", json!(-1)),
        ("OomKillDisable", json!(true)),
        ("RestartPolicy", json!({ "Name": "always" })),
        ("LogConfig", json!({ "Type": "json-file" })),
        ("AutoRemove", json!(false)),
        ("Init", json!(true)),
        ("ExtraHosts", json!(["a:1.2.3.4"])),
        ("PortBindings", json!({ "80/tcp": [{ "HostPort": "80" }] })),
        ("Annotations", json!({ "dev.gvisor.spec": "x" })),
        ("StorageOpt", json!({ "size": "1T" })),
        ("Tmpfs", json!({ "/x": "rw,nosuid,nodev" })),
        ("Tmpfs", json!({ "/x": "rw,size=1" })),
        ("Tmpfs", json!({ "/x": "rw,nosuid,nodev,size=1,suid" })),
        ("Mounts", json!([{ "Type": "bind", "Source": "/", "Target": "/x", "ReadOnly": true }])),
        (
            "Mounts",
            json!([{ "Type": "bind", "Source": "/a", "Target": "/x", "ReadOnly": false, "BindOptions": { "NonRecursive": true, "Propagation": "rprivate" } }]),
        ),
        (
            "Mounts",
            json!([{ "Type": "bind", "Source": "/a", "Target": "/x", "ReadOnly": true, "BindOptions": { "NonRecursive": true, "Propagation": "rshared" } }]),
        ),
        (
            "Mounts",
            json!([{ "Type": "volume", "Source": "somebodys", "Target": "/x", "ReadOnly": true, "VolumeOptions": { "NoCopy": true } }]),
        ),
    ] {
        check(&format!("HostConfig.{key}"), value);
    }
}

/// How Podman reads a typed mount: it writes `--mount` strings of it and takes them apart again.
fn as_podman_reads(mount: &serde_json::Value) -> Vec<(String, String)> {
    let field = |key: &str| mount[key].as_str().unwrap_or_default().to_owned();
    let text = format!("type={},source={},target={},ro=true", field("Type"), field("Source"), field("Target"));
    text.split(',').map(|part| part.split_once('=').unwrap_or((part, ""))).map(|(a, b)| (a.into(), b.into())).collect()
}

fn hostile_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "a",
        "/",
        ":",
        ",",
        "=",
        "rw",
        ":rw",
        ",readonly=false",
        ",type=volume",
        "\"",
        "\\",
        "\n",
        "\0",
        "..",
        "/..",
        " ",
        "'",
        "ä",
        "--privileged",
        "unix://",
        "/var/run/docker.sock",
        "}",
        "{",
        "]",
        "$(id)",
        "uid=0",
        "size=0",
        ":exec",
        "\u{202e}",
    ]);
    prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_of_a_policy_becomes_another_option(
        host in hostile_text(), at in hostile_text(), tmpfs in hostile_text(), volume in hostile_text(), variable in hostile_text(),
        hostname in hostile_text(), runtime in hostile_text(), which in 0_usize..7,
    ) {
        for kind in [EngineKind::Docker, EngineKind::Podman] {
            let mut spec = Spec { seccomp: None, ..spec() };
            let before = shown(kind, &spec);
            let (host, at, tmpfs) = (format!("/{host}"), format!("/{at}"), format!("/{tmpfs}"));
            match which {
                0 => spec.binds[0].host = host.clone().into(),
                1 => spec.binds[0].at = at.clone().into(),
                2 => spec.tmpfs[0].at = tmpfs.clone().into(),
                3 => spec.image_volumes = vec![format!("/{volume}"), "/tmp".into()],
                4 => spec.image_variables[0] = variable.clone(),
                5 => spec.hostname = hostname.clone(),
                _ => spec.runtime = Some(runtime.clone()),
            }
            // A refusal is an answer too.
            let Ok(body) = spec.body(kind) else { continue };
            let mut after = serde_json::to_value(body).unwrap();
            let volume_index = 2;
            match which {
                0 => prop_assert_eq!(after["HostConfig"]["Mounts"][1]["Source"].take(), host),
                1 => prop_assert_eq!(after["HostConfig"]["Mounts"][1]["Target"].take(), at),
                2 => {
                    let all = after["HostConfig"]["Tmpfs"].as_object_mut().unwrap();
                    let options = all.remove(&tmpfs).unwrap();
                    all.insert("/work".into(), options);
                }
                3 => prop_assert_eq!(after["HostConfig"]["Mounts"][volume_index]["Target"].take(), format!("/{volume}")),
                4 => prop_assert_eq!(after["Env"][0].take(), format!("{variable}=")),
                5 => prop_assert_eq!(after["Hostname"].take(), hostname.as_str()),
                _ => prop_assert_eq!(after["HostConfig"]["Runtime"].take(), runtime.as_str()),
            }
            // Everything else is as it was.
            let mut before = before;
            match which {
                0 => { before["HostConfig"]["Mounts"][1]["Source"].take(); }
                1 => { before["HostConfig"]["Mounts"][1]["Target"].take(); }
                2 => {}
                3 => { before["HostConfig"]["Mounts"][volume_index]["Target"].take(); }
                4 => { before["Env"][0].take(); }
                5 => { before["Hostname"].take(); }
                _ => { before["HostConfig"]["Runtime"].take(); }
            }
            prop_assert_eq!(&after, &before);
            if kind == EngineKind::Podman {
                let body = serde_json::to_value(spec.body(kind).unwrap()).unwrap();
                for mount in body["HostConfig"]["Mounts"].as_array().unwrap() {
                    let read = as_podman_reads(mount);
                    let keys: Vec<&str> = read.iter().map(|(key, _)| key.as_str()).collect();
                    prop_assert_eq!(keys, ["type", "source", "target", "ro"]);
                }
            }
        }
    }
}

#[test]
fn f16_the_guest_is_in_the_root_itself_under_a_name_that_no_image_can_know() {
    let places: Vec<String> = (0..100).map(|_| GuestPlace::new().unwrap().as_str().to_owned()).collect();
    for place in &places {
        let name = place.strip_prefix("/.ringfence-").unwrap();
        assert!(name.len() >= 26 && name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{place}");
    }
    let different: HashSet<&String> = places.iter().collect();
    assert_eq!(different.len(), places.len());
    let body = shown(EngineKind::Docker, &Spec { guest_at: GuestPlace::new().unwrap(), ..spec() });
    assert_eq!(body["Entrypoint"][0], body["HostConfig"]["Mounts"][0]["Target"], "what is executed is what is mounted");
}
