//! `ringfence image build`.

use std::path::Path;
use std::time::Instant;

use ringfence::StateFolder;
use ringfence::sandbox_images::connect::connect;
use ringfence::sandbox_images::{
    Bundle, Listener, Pull, Recipe, Source, Wish, build as build_one, make_bundle, recipes, write_layout,
};

use super::progress::Line;
use super::{ImageFailure, chosen, kind, page, print};
use crate::args::{ImageBuildArgs, SourceArg};
use crate::changes::readable;

pub(super) async fn build(state: &StateFolder, args: &ImageBuildArgs) -> Result<u8, ImageFailure> {
    let mut wanted = chosen(&args.names)?;
    if wanted.is_empty() {
        wanted = recipes().iter().filter(|recipe| !recipe.languages().is_empty()).collect();
    }
    let wish = Wish {
        source: match args.from {
            SourceArg::Packages => Source::Packages,
            SourceArg::Registry => Source::Registry,
        },
        pull: if args.pull { Pull::Allowed } else { Pull::Forbidden },
        mirrors: args.mirror.clone(),
        built_at: std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok()).unwrap_or_else(page::now),
    };
    let line = Line::new(args.quiet);
    let listener = line.listener();
    // What killed builds left, gigabytes perhaps. What cannot be removed now is tried again the next time.
    ringfence::scratch::sweep(state).ok();
    match &args.oci {
        Some(folder) => write_folder(state, folder, &wanted, &wish, &line, &listener),
        None => {
            let engine = connect(kind(args.engine), |name| std::env::var(name).ok()).await?;
            for recipe in wanted {
                let began = Instant::now();
                let built = build_one(&engine, state, recipe, &wish, &listener).await;
                line.clear();
                let built = built.map_err(|source| ImageFailure::Build { name: recipe.name().to_owned(), source })?;
                let took = began.elapsed().as_secs_f64();
                line.say(&format!("made {}, {}, in {took:.1} s", recipe.name(), readable(built.bytes)));
                print(&format!("{}\n", built.reference))?;
            }
            Ok(0)
        }
    }
}

fn write_folder(
    state: &StateFolder,
    folder: &Path,
    wanted: &[&'static Recipe],
    wish: &Wish,
    line: &Line,
    listener: &Listener,
) -> Result<u8, ImageFailure> {
    if wish.source == Source::Registry {
        return Err(ImageFailure::LayoutFromRegistry);
    }
    let mut bundles: Vec<Bundle> = Vec::new();
    for recipe in wanted {
        let made = make_bundle(state, recipe, wish, listener);
        line.clear();
        bundles.push(made.map_err(|source| ImageFailure::Packages { name: recipe.name().to_owned(), source })?);
    }
    write_layout(folder, &bundles)?;
    let bytes = bundles.iter().map(Bundle::size).sum();
    line.say(&format!("wrote {} to {}, {}", page::count(bundles.len()), folder.display(), readable(bytes)));
    for recipe in wanted {
        print(&format!("oci:{}:{}\n", folder.display(), recipe.name()))?;
    }
    Ok(0)
}
