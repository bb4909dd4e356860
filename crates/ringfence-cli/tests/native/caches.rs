//! Packages that were fetched outside, as a program behind the wall meets them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::probe::{Wall, sh, walled_with};
use crate::stage::{Ended, Stage};

/// Makes a wheel with one module in the folder that it is given, and prints a lock file for it.
const MAKE: &str = r#"
import hashlib, sys, zipfile
path = sys.argv[1] + "/tiny-1.0-py3-none-any.whl"
with zipfile.ZipFile(path, "w") as wheel:
    wheel.writestr("tiny.py", "WORD = 'found'\n")
    wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n")
print("tiny==1.0 --hash=sha256:" + hashlib.sha256(open(path, "rb").read()).hexdigest())
"#;

/// A stage with a lock file and, beside it, the wheel that it names; nothing where there is no pip.
fn staged() -> Option<Stage> {
    let stage = walled_with("cache: [pip]\n")?;
    if !Command::new("pip3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no pip3 here");
        return None;
    }
    let wheels = wheels(&stage);
    fs::create_dir_all(&wheels).unwrap();
    let made = Command::new("python3").args(["-c", MAKE]).arg(&wheels).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    stage.write("requirements.txt", made.stdout);
    Some(stage)
}

fn wheels(stage: &Stage) -> PathBuf {
    stage.state().with_file_name("wheels")
}

fn fill(stage: &Stage) -> Ended {
    let fill = stage.ringfence(["cache", "fill"]).env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", wheels(stage));
    fill.run()
}

/// The wheel in the cache, on the host.
fn cached(stage: &Stage) -> PathBuf {
    let caches: Vec<_> = fs::read_dir(stage.state().join("caches/pip")).unwrap().collect();
    assert_eq!(caches.len(), 1, "{caches:?}");
    caches.into_iter().next().unwrap().unwrap().path().join("files/tiny-1.0-py3-none-any.whl")
}

#[test]
fn a_program_without_a_network_uses_the_packages_that_were_fetched() {
    let Some(stage) = staged() else { return };
    let line = "PYTHONPATH=/deps/pip/tiny-1.0-py3-none-any.whl python3 -c 'import tiny; print(tiny.WORD)'; echo $PIP_NO_INDEX $PIP_FIND_LINKS";
    let missing = sh(&stage, Wall::Native, line, &[]).expect(125, &["ringfence cache fill"]);
    assert_eq!(missing.text(), "", "nothing ran");
    fill(&stage).expect(0, &["pip: 1 packages were fetched"]);
    assert_eq!(sh(&stage, Wall::Native, line, &[]).expect(0, &[]).text(), "found\n1 /deps/pip\n");
    fill(&stage).expect(0, &["all is there"]);
    assert!(stage.ringfence(["cache", "list"]).run().expect(0, &[]).text().contains("requirements.txt"));
    stage.ringfence(["cache", "verify"]).run().expect(0, &["is what was fetched"]);
    stage.ringfence(["cache", "prune", "--older-than", "1h"]).run().expect(0, &["0 caches"]);
}

#[test]
fn a_program_cannot_change_a_cache_and_whoever_does_is_found_out() {
    let Some(stage) = staged() else { return };
    fill(&stage).expect(0, &[]);
    let wheel = cached(&stage);
    let before = fs::read(&wheel).unwrap();
    let harm = |path: &str| {
        format!(
            "cd {path} && {{ chmod 777 . *; echo x >> tiny-1.0-py3-none-any.whl; touch more; ln -s / out; mv tiny-1.0-py3-none-any.whl x; rm -f *; }}; exit 0"
        )
    };
    sh(&stage, Wall::Native, &harm("/deps/pip"), &[]).expect(0, &[]);
    assert_eq!(fs::read(&wheel).unwrap(), before);
    stage.ringfence(["cache", "verify"]).run().expect(0, &[]);
    let folder = wheel.parent().unwrap().to_str().unwrap().to_owned();
    sh(&stage, Wall::Bare, &harm(&folder), &[]).expect(0, &[]);
    assert!(!wheel.exists(), "the twin gets through");
    stage.ringfence(["cache", "verify"]).run().expect(1, &["is not what was fetched"]);
    let refused = sh(&stage, Wall::Native, "echo ran", &[]).expect(125, &["is not what was fetched"]);
    assert_eq!(refused.text(), "");
    fill(&stage).expect(0, &["it is fetched again"]);
    assert_eq!(sh(&stage, Wall::Native, "echo ran", &[]).expect(0, &[]).text(), "ran\n");
}
