//! Stand-ins for a registry of packages and a server of repositories, for all walls alike.

use std::path::Path;
use std::process::Command;

use crate::tls_origin::{Answer, Asked};

/// A package index with one package, a git repository, and a registry with one package: all of it files.
pub(crate) fn stand_in(folder: &Path) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    let folder = folder.to_owned();
    move |asked: &Asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        if path == "/simple/demo/" {
            let body = "<a href=\"/files/demo-1.0-py3-none-any.whl\">demo-1.0-py3-none-any.whl</a>";
            return Answer { status: 200, headers: vec![("Content-Type", "text/html".to_owned())], body: body.into() };
        }
        if path == "/demo" {
            let body = r#"{"name":"demo","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"demo","version":"1.2.3","dist":{"tarball":"https://127.0.0.1/demo.tgz","shasum":"0"}}}}"#;
            return Answer {
                status: 200,
                headers: vec![("Content-Type", "application/json".to_owned())],
                body: body.into(),
            };
        }
        let relative = path.trim_start_matches('/');
        assert!(!relative.contains(".."));
        std::fs::read(folder.join(relative)).map_or_else(|_| Answer::missing(), Answer::ok)
    }
}

/// A git repository in `folder`, as files.
pub(crate) fn make_repository(folder: &Path) {
    let script = "cd \"$1\" && git init -q -b main src && cd src && echo one > file && git add file && \
                  git -c user.name=a -c user.email=a@a.test commit -qm one && cd .. && git clone -q --bare src repo.git && \
                  cd repo.git && git update-server-info";
    let made = Command::new("sh").args(["-c", script, "sh", folder.to_str().unwrap()]).status().unwrap();
    assert!(made.success());
}

/// The package of the stand-in that serves `folder`.
pub(crate) fn make_package(python: &str, folder: &Path) {
    let wheel = "import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('demo.py', '')
    wheel.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')
    wheel.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: a\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('demo-1.0.dist-info/RECORD', '')
";
    let file = folder.join("files/demo-1.0-py3-none-any.whl");
    assert!(Command::new(python).args(["-c", wheel, file.to_str().unwrap()]).status().unwrap().success());
}
