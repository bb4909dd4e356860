use std::path::Path;

use super::super::plan::dockerfile;
use super::super::recipe::{RecipeProblem, parse_all};
use super::super::*;
use crate::language::Language;

fn wish() -> Wish {
    Wish { source: Source::Packages, pull: Pull::Forbidden, mirrors: Vec::new(), built_at: 1_700_000_000 }
}

fn shown(plan: &PackagesPlan) -> String {
    let words = plan.arguments.iter().map(|word| word.to_string_lossy().into_owned());
    let environment = plan.environment.iter().map(|(name, value)| format!("{name}={value}"));
    environment.chain(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_recipe_of_this_program_can_be_read() {
    let names: Vec<&str> = recipes().iter().map(Recipe::name).collect();
    assert_eq!(names, ["base", "python", "node", "go", "rust", "java", "polyglot"]);
    for recipe in recipes() {
        assert!(recipe.packages().len() > 10, "{}", recipe.name());
        assert_eq!(recipe.suite(), "trixie");
        assert!(!recipe.description().is_empty());
    }
    let polyglot = find("polyglot").unwrap();
    assert!(polyglot.packages().iter().any(|package| package == "python3"));
    assert_eq!(polyglot.files().len(), 2);
}

#[test]
fn a_recipe_with_anything_odd_in_it_is_refused() {
    let base = "name: base\ndescription: d\nsuite: trixie\npackages: [bash]\n";
    assert!(parse_all(&[base]).is_ok());
    let check = |text: &str, fits: fn(&RecipeProblem) -> bool| {
        let problem = parse_all(&[base, text]).unwrap_err();
        assert!(fits(&problem), "{text}: {problem}");
    };
    check("name: a\ndescription: d\nbase: base\npackages: [--x]\n", |it| matches!(it, RecipeProblem::Package(_)));
    check("name: a\ndescription: d\nbase: base\npackages: ['a,b']\n", |it| matches!(it, RecipeProblem::Package(_)));
    check("name: A/b\ndescription: d\nbase: base\npackages: []\n", |it| matches!(it, RecipeProblem::Name(_)));
    check("name: base\ndescription: d\nbase: base\npackages: []\n", |it| matches!(it, RecipeProblem::Name(_)));
    check("name: a\ndescription: d\nbase: none\npackages: []\n", |it| matches!(it, RecipeProblem::Base(_)));
    check("name: a\ndescription: d\npackages: []\n", |it| matches!(it, RecipeProblem::BaseOrSuite(_)));
    check("name: a\ndescription: d\nsuite: '-x'\npackages: []\n", |it| matches!(it, RecipeProblem::Suite(_)));
    check("name: a\ndescription: d\nbase: base\npackages: []\nmore: 1\n", |it| matches!(it, RecipeProblem::Text(_)));
    for to in ["usr/x", "/usr/../x", "//x", "/a b"] {
        let text = format!(
            "name: a\ndescription: d\nbase: base\npackages: []\nfiles: [{{ from: tsx, to: '{to}', mode: 755 }}]\n"
        );
        check(&text, |it| matches!(it, RecipeProblem::File(_)));
    }
}

#[test]
fn a_recipes_hash_is_stable_and_changes_with_all_that_it_says_and_with_its_base() {
    let texts = |packages: &str, own: &str| {
        let base = format!("name: base\ndescription: d\nsuite: trixie\npackages: [{packages}]\n");
        let next = format!("name: next\ndescription: d\nbase: base\npackages: [{own}]\n");
        let all = parse_all(&[&base, &next]).unwrap();
        (all[0].hash().to_owned(), all[1].hash().to_owned())
    };
    let (base, next) = texts("bash, git", "jq");
    insta::assert_snapshot!(base, @"ea0ca9d0aa6d3cf2985751c60702d8400624e0a2606bc576acc7e7863030763e");
    assert_eq!(texts("git, bash", "jq"), (base.clone(), next.clone()));
    assert_ne!(texts("bash", "jq").0, base);
    assert_ne!(texts("bash", "jq").1, next);
    assert_eq!(texts("bash, git", "file").0, base);
    assert_ne!(texts("bash, git", "file").1, next);
}

#[test]
fn each_language_and_each_known_program_has_an_image() {
    let name = |language| image_for(language).name();
    assert_eq!(name(None), "base");
    assert_eq!(name(Some(Language::Bash)), "base");
    assert_eq!(name(Some(Language::Python)), "python");
    assert_eq!(name(Some(Language::Javascript)), "node");
    assert_eq!(name(Some(Language::Typescript)), "node");
    for language in Language::ALL {
        assert!(image_for(Some(language)).languages().contains(&language));
    }
    assert_eq!(image_for_program("cargo").name(), "rust");
    assert_eq!(image_for_program("python3").name(), "python");
    assert_eq!(image_for_program("no-such-program").name(), "base");
    let python = find("python").unwrap();
    assert_eq!(default_reference(Some(Language::Python)), format!("ringfence/python:{}", &python.hash()[..12]));
    assert!(default_reference(None).parse::<ringfence_policy::Image>().is_ok());
}

#[test]
fn the_plan_for_packages_says_exactly_what_is_called() {
    insta::assert_snapshot!(shown(&from_packages(find("python").unwrap(), &wish(), Privileges::Root)), @r#"
    LC_ALL=C.UTF-8
    SOURCE_DATE_EPOCH=1700000000
    --mode=root
    --variant=apt
    --format=tar
    --aptopt=APT::Install-Recommends "false"
    --dpkgopt=path-exclude=/usr/share/man/*/?*
    --dpkgopt=path-exclude=/usr/share/doc/*
    --dpkgopt=path-exclude=/usr/share/locale/*
    --dpkgopt=path-exclude=/usr/share/info/*
    --dpkgopt=path-include=/usr/share/doc/*/copyright
    --include=bash,ca-certificates,coreutils,curl,file,git,jq,less,make,patch,procps,python-is-python3,python3,python3-pip,python3-pytest,python3-venv,ripgrep,unzip,xz-utils
    --customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"
    --
    trixie
    -
    "#);
}

#[test]
fn an_ordinary_user_is_root_in_a_namespace_and_mirrors_come_last() {
    let wish = Wish { mirrors: vec!["https://mirror.example/debian".parse().unwrap()], ..wish() };
    let plan = shown(&from_packages(find("base").unwrap(), &wish, Privileges::User));
    assert!(plan.contains("--mode=unshare\n"));
    assert!(plan.ends_with("--\ntrixie\n-\nhttps://mirror.example/debian"));
}

#[test]
fn a_mirror_is_an_address_without_secrets_or_a_file_and_never_an_option() {
    assert!("https://mirror.example/debian".parse::<Mirror>().is_ok());
    assert!("/etc/apt/sources.list".parse::<Mirror>().is_ok());
    assert_eq!("https://me:secret@mirror.example/debian".parse::<Mirror>(), Err(BadMirror::Credentials));
    for odd in ["--hook=x", "-", "deb http://x y main", "file:///x", "copy:/x", "http://", "a\nb", ""] {
        assert!(matches!(odd.parse::<Mirror>(), Err(BadMirror::Form(_))), "{odd}");
    }
}

#[test]
fn every_dockerfile_in_the_repository_says_what_its_recipe_says() {
    for recipe in recipes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images").join(recipe.name()).join("Dockerfile");
        let expected = dockerfile(recipe);
        if std::env::var_os("RINGFENCE_WRITE_DOCKERFILES").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found,
            expected,
            "write it again with RINGFENCE_WRITE_DOCKERFILES=1 and this test: {}",
            path.display()
        );
    }
}

#[test]
fn the_plan_for_a_registry_goes_on_from_the_image_of_the_base() {
    let plan = from_registry(find("python").unwrap(), &wish());
    assert_eq!(plan.from, find("base").unwrap().reference());
    assert_eq!(from_registry(find("base").unwrap(), &wish()).from, "debian:trixie-slim");
    assert_eq!(plan.labels[0], (IMAGE_LABEL, "python".to_owned()));
    assert_eq!(plan.labels[2], (BUILT_LABEL, "2023-11-14T22:13:20Z".to_owned()));
}
