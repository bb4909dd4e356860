//! How images look on a page. What an engine says of them is made harmless first.

use std::time::{SystemTime, UNIX_EPOCH};

use ringfence::sandbox_images::{Listed, Removal, Verified, recipes};
use serde_json::json;

use crate::changes::readable;
use crate::terminal::plain_line;

/// Digits of an id that people look at.
const SHORT_ID: usize = 19;

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(super) fn names() -> String {
    recipes().iter().map(|recipe| recipe.name()).collect::<Vec<_>>().join(", ")
}

pub(super) fn count(images: usize) -> String {
    if images == 1 { "1 image".to_owned() } else { format!("{images} images") }
}

pub(super) fn list_as_table(listed: &[Listed], now: u64) -> String {
    let rows = listed.iter().map(|one| {
        let tag = one.reference().map_or_else(|| short(&one.id), str::to_owned);
        [
            one.name.clone(),
            tag,
            readable(one.bytes),
            age(now.saturating_sub(one.built_at)),
            one.standing.word().to_owned(),
        ]
    });
    table(["NAME", "TAG", "SIZE", "AGE", "RECIPE"], rows)
}

pub(super) fn list_as_json(listed: &[Listed]) -> String {
    let rows = listed.iter().map(|one| {
        json!({
            "name": one.name,
            "id": one.id,
            "tags": one.tags,
            "bytes": one.bytes,
            "builtAt": one.built,
            "recipe": one.recipe,
            "standing": one.standing.word(),
        })
    });
    format!("{:#}\n", json!(rows.collect::<Vec<_>>()))
}

pub(super) fn verified_as_table(verified: &[Verified]) -> String {
    let mut text = String::new();
    for one in verified {
        let found = if one.problems.is_empty() { "as it was made" } else { "differs" };
        text.push_str(&format!("{}  {found}\n", plain_line(one.reference.as_bytes())));
        for problem in &one.problems {
            text.push_str(&format!("    {}\n", plain_line(problem.to_string().as_bytes())));
        }
    }
    text
}

pub(super) fn verified_as_json(verified: &[Verified]) -> String {
    let rows = verified.iter().map(|one| {
        json!({
            "name": one.name,
            "reference": one.reference,
            "id": one.id,
            "problems": one.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    });
    format!("{:#}\n", json!(rows.collect::<Vec<_>>()))
}

pub(super) fn removal(removal: &Removal, became: &str) -> String {
    let names = removal.references.join(", ");
    format!("{}  {}  {became}\n", plain_line(names.as_bytes()), readable(removal.image.bytes))
}

fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

/// How long ago, in the largest unit that fits.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows.map(|row| row.map(|cell| plain_line(cell.as_bytes()))));
    let mut widths = [0; N];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &all {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use ringfence::sandbox_images::Standing;

    use super::*;

    fn listed(name: &str, age: u64, standing: Standing) -> Listed {
        Listed {
            name: name.to_owned(),
            id: format!("sha256:{}", "0123456789abcdef".repeat(4)),
            tags: vec![format!("ringfence/{name}:0123456789ab"), format!("ringfence/{name}:latest")],
            bytes: 150 << 20,
            built: None,
            built_at: 1_000_000_000 - age,
            recipe: "0123456789abcdef".repeat(4),
            standing,
        }
    }

    #[test]
    fn a_list_of_images_is_a_table_in_which_nothing_acts() {
        let mut nameless = listed("node\x1b[2J", 90_000, Standing::Unknown);
        nameless.tags.clear();
        let rows = [listed("base", 90, Standing::Current), listed("python", 7_300, Standing::Outdated), nameless];
        insta::assert_snapshot!(list_as_table(&rows, 1_000_000_000), @r"
        NAME         TAG                            SIZE       AGE  RECIPE
        base         ringfence/base:0123456789ab    150.0 MiB  1m   current
        python       ringfence/python:0123456789ab  150.0 MiB  2h   outdated
        node\x1b[2J  sha256:0123456789ab            150.0 MiB  1d   unknown
        ");
    }
}
