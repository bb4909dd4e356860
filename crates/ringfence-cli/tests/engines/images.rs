//! Images of ours in engines: which are ours, which go, and which are not run whatever they say of themselves.

use ringfence::sandbox_images::{IMAGE_LABEL, RECIPE_LABEL, Recipe, recipes};
use ringfence_policy::BackendKind;

use crate::api::{has_image, make_image, name_image, remove_image};
use crate::walls::{Walled, for_each_engine};

/// Names the images that are to be built, with commas: it takes minutes, so the step that tests engines does not.
const BUILT: &str = "RINGFENCE_TEST_IMAGES";

fn recipe(name: &str) -> &'static Recipe {
    recipes().iter().find(|recipe| recipe.name() == name).unwrap()
}

/// `ringfence image VERB --engine ENGINE ARGS…`
fn image(place: &Walled, verb: &str, args: &[&str]) -> crate::stage::Ended {
    let engine = place.wall.kind.to_string();
    place.ringfence(&[&["image", verb, "--engine", &engine], args].concat()).run()
}

/// Takes names away when it is dropped, so that no other test meets them.
struct Named<'a>(&'a Walled, Vec<String>);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.1.iter().for_each(|name| remove_image(&self.0.wall, name));
    }
}

/// One that no recipe of this program has.
const OLDER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn labels(recipe: &str) -> Vec<String> {
    vec![format!("LABEL {IMAGE_LABEL}=base"), format!("LABEL {RECIPE_LABEL}={recipe}")]
}

#[test]
fn s12_an_image_under_our_name_is_taken_once_and_neither_one_with_surprises_nor_another_after_it() {
    for_each_engine("", |place| {
        let wall = &place.wall;
        // Podman writes variables of its own into what it is told to make, which none of ours has.
        if wall.kind != BackendKind::Docker || !wall.shows_processes() {
            return;
        }
        let current = recipe("base");
        let own = current.reference();
        let name = own.rsplit_once(':').unwrap();
        let _named = Named(place, vec![own.clone()]);
        place.stage.write("sandbox.policy.yaml", format!("version: 1\nbackend: {}\n", wall.kind));
        let run = || place.run(&[], &["sh", "-c", "echo ran"]).run();

        let surprise = [labels(current.hash()), vec!["ENTRYPOINT [\"/bin/true\"]".to_owned()]].concat();
        make_image(wall, name, &surprise);
        let ended = run();
        assert!(ended.code == 125 && ended.text().is_empty(), "{wall}: it acts when it is used: {ended:?}");
        assert!(ended.stderr.contains("an entry point"), "{wall}: {ended:?}");
        // Another user of the engine may have made it, and nobody here knows better.
        make_image(wall, name, &labels(current.hash()));
        let ended = run();
        assert_eq!(ended.text(), "ran\n", "{wall}: the twin: {ended:?}");
        image(place, "verify", &["base"]).expect(0, &[]);
        make_image(wall, name, &labels(current.hash()));
        let ended = run();
        assert!(ended.code == 125 && ended.text().is_empty(), "{wall}: it was exchanged: {ended:?}");
        assert_eq!(image(place, "verify", &["base"]).code, 1, "{wall}");
    });
}

#[test]
fn images_of_older_recipes_are_pruned_and_nothing_that_others_built_on_them() {
    for_each_engine("", |place| {
        let wall = &place.wall;
        if !wall.shows_processes() {
            return; // It is the same engine.
        }
        let older = &OLDER[..12];
        let named = Named(place, vec![format!("ringfence/base:{older}"), "ringfence/mine:1".to_owned()]);
        make_image(wall, ("ringfence/base", older), &labels(OLDER));
        make_image(wall, ("ringfence/mine", "1"), &labels(OLDER));
        let are_there = || named.1.iter().map(|name| has_image(wall, name)).collect::<Vec<_>>();
        let listed = image(place, "list", &[]).text();
        assert!(listed.contains(older) && listed.contains("outdated") && !listed.contains("mine"), "{wall}: {listed}");
        image(place, "prune", &["--dry-run"]).expect(0, &[]);
        assert_eq!(are_there(), [true, true], "{wall}: nothing is removed by asking");
        image(place, "prune", &[]).expect(0, &[]);
        assert_eq!(are_there(), [false, true], "{wall}");
    });
}

/// What is run in an image of this name, and what comes of it.
fn probe(name: &str) -> &'static [&'static str] {
    match name {
        "base" => &["--", "sh", "-c", "git --version && jq --version && rg --version && curl --version"],
        "python" => &["--lang", "python", "--code", "import pytest, venv, pip; print(6 * 7)"],
        "node" => &["--lang", "javascript", "--code", "console.log(6 * 7)"],
        "go" => &["--", "go", "version"],
        "rust" => &["--", "cargo", "--version"],
        "java" => &["--", "java", "--version"],
        _ => &["--", "true"],
    }
}

#[test]
fn images_of_ours_are_built_verified_run_in_and_not_when_they_were_exchanged_or_that_is_skipped_loudly() {
    let Ok(names) = std::env::var(BUILT) else {
        eprintln!("SKIPPED: {BUILT} names no images to build; `cargo xtask engines images base python` does");
        return;
    };
    for_each_engine("", |place| {
        let wall = &place.wall;
        // Once is long enough; and by hand there are engines of an ordinary user among them, which cannot see what is root's.
        if wall.name != "docker" {
            return;
        }
        place.stage.write("sandbox.policy.yaml", format!("version: 1\nbackend: {}\n", wall.kind));
        let mut named = Named(place, Vec::new());
        for name in names.split(',') {
            let own = recipe(name).reference();
            named.1.extend([own.clone(), format!("ringfence/{name}:latest")]);
            let run = || place.ringfence(&[&["run", "-q"], probe(name)].concat()).run();
            assert_eq!(run().code, 125, "{name}: the twin: it is not there before it is built");
            let built = image(place, "build", &[name]).expect(0, &[]);
            eprintln!("{}", built.stderr.lines().last().unwrap_or_default());
            let listed = image(place, "list", &[]).text();
            let is_listed = |line: &str| line.contains(&own) && line.ends_with("current");
            assert!(listed.lines().any(is_listed), "{name}: {listed}");
            image(place, "verify", &[name]).expect(0, &[]);
            let ended = run();
            assert!(ended.code == 0 && !ended.text().is_empty(), "{name}: {ended:?}");
            image(place, "prune", &[]).expect(0, &[]);
            assert!(has_image(wall, &own), "{name}: one that is current was pruned");
            // Somebody who may speak to the engine gives its name to another.
            let (repository, tag) = own.rsplit_once(':').unwrap();
            name_image(wall, &wall.engine.as_ref().unwrap().1, (repository, tag));
            assert_eq!(image(place, "verify", &[name]).code, 1, "{name}: it was exchanged");
            let ended = run();
            assert!(ended.code == 125 && ended.text().is_empty(), "{name}: an exchanged one was run: {ended:?}");
            name_image(wall, &format!("ringfence/{name}:latest"), (repository, tag));
            run().expect(0, &[]);
        }
    });
}
