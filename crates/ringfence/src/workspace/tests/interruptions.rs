use super::*;
use crate::workspace::apply::name_of;
use crate::workspace::compare::Exact;
use crate::workspace::journal::{Act, Fate, Intent, Journal, decode_all};

const ASIDE: &str = ".ringfence-aside";

/// A journal that was killed after it said that `a` goes from `from` to `to`.
fn killed(bench: &Bench, from: Option<Node>, to: Option<Node>) -> RunId {
    bench.kept().keep(&bench.set()).unwrap();
    let site = bench.site();
    let set = bench.set();
    let mut journal = site.journal_for(Act::Apply, &set.run_id, name_of(&set).unwrap(), "").unwrap();
    let exact = |node: Option<Node>| node.map(|node| Exact { node, owner: None });
    let intent =
        Intent { number: journal.next(), place: place("a"), from: exact(from), to: exact(to), aside: ASIDE.to_owned() };
    journal.intend(&[intent]).unwrap();
    journal.recorded().head.id.clone()
}

/// The fate of the one intent after somebody came to put things in order.
fn fate(bench: &Bench, id: &RunId) -> Fate {
    bench.site().open_journal(id).unwrap().recorded().intents[0].1
}

fn old_to_new() -> (Bench, RunId) {
    let mut bench = Bench::new();
    bench.write("a", "old");
    bench.changes_file("a", "new");
    let (old, new) = (bench.file_node("old", 0o644), bench.file_node("new", 0o644));
    let id = killed(&bench, Some(old), Some(new));
    (bench, id)
}

#[track_caller]
fn check(bench: &Bench, id: &RunId, expected: Fate, text: Option<&str>) {
    assert_eq!(fate(bench, id), expected);
    assert_eq!(bench.read("a").as_deref(), text);
    assert_eq!(bench.asides(), Vec::<PathBuf>::new());
}

#[test]
fn r11_half_a_file_and_a_whole_one_that_were_not_put_in_place_are_removed() {
    let (bench, id) = old_to_new();
    bench.write(format!("{ASIDE}.part"), "ne");
    check(&bench, &id, Fate::Dropped, Some("old"));
    let (bench, id) = old_to_new();
    bench.write(ASIDE, "new");
    check(&bench, &id, Fate::Dropped, Some("old"));
    bench.apply_whole();
    assert_eq!(bench.read("a").as_deref(), Some("new"));
    bench.undo_whole();
    assert_eq!(bench.read("a").as_deref(), Some("old"));
}

#[test]
fn r11_what_was_put_in_place_stays_and_the_old_one_is_removed() {
    let (bench, id) = old_to_new();
    bench.write("a", "new");
    bench.write(ASIDE, "old");
    check(&bench, &id, Fate::Done, Some("new"));
    let (bench, id) = old_to_new();
    bench.write("a", "new");
    check(&bench, &id, Fate::Done, Some("new"));
}

#[test]
fn r11_what_somebody_else_wrote_is_put_back() {
    let (bench, id) = old_to_new();
    bench.write("a", "new");
    bench.write(ASIDE, "the host wrote this while it was swapped out");
    check(&bench, &id, Fate::Dropped, Some("the host wrote this while it was swapped out"));
    // Likewise what was to be removed.
    let mut bench = Bench::new();
    bench.write("a", "old");
    bench.removes("a");
    let old = bench.file_node("old", 0o644);
    let id = killed(&bench, Some(old), None);
    fs::remove_file(bench.at("a")).unwrap();
    bench.write(ASIDE, "written");
    check(&bench, &id, Fate::Dropped, Some("written"));
}

#[test]
fn r11_what_cannot_be_put_back_is_kept_and_named() {
    let (bench, id) = old_to_new();
    bench.write("a", "a second writer");
    bench.write(ASIDE, "a first writer");
    let site = bench.site();
    assert_eq!(site.stranded(), [bench.at(ASIDE)]);
    drop(site);
    assert_eq!(fate(&bench, &id), Fate::Done);
    assert_eq!(bench.read(ASIDE).as_deref(), Some("a first writer"));
    assert_eq!(bench.read("a").as_deref(), Some("a second writer"));
}

#[test]
fn r11_a_folder_that_was_only_begun_is_removed() {
    let mut bench = Bench::new();
    bench.changes_folder("a", 0o755);
    let id = killed(&bench, None, Some(Node::Folder { mode: 0o755 }));
    bench.folder(ASIDE);
    bench.mode(ASIDE, 0o700);
    assert_eq!(fate(&bench, &id), Fate::Dropped);
    assert_eq!(bench.picture(), Picture::new());
}

#[test]
fn r11_an_interrupted_journal_is_gone_on_with_by_the_same_set_and_closed_by_another() {
    let (mut bench, id) = old_to_new();
    let applied = bench.apply_whole();
    assert_eq!(applied.undo, Some(id));
    let (other, other_id) = old_to_new();
    bench = other;
    bench.changes_file("b", "more");
    let applied = bench.apply_whole();
    assert_ne!(applied.undo, Some(other_id));
    assert!(bench.site().journals().unwrap().iter().all(|journal| journal.finished));
}

#[test]
fn r11_a_journal_that_is_cut_anywhere_says_less_and_never_something_else() {
    let bench = {
        let mut bench = Bench::new();
        bench.write("a", "old");
        bench.changes_file("a", "new");
        bench.changes_file("b", "new");
        bench
    };
    let id = bench.apply_whole().undo.unwrap();
    let path = bench.state.path().join("undo").join(id.as_str()).join("entries");
    let whole = fs::read(&path).unwrap();
    let (all, length) = decode_all(&whole).unwrap();
    assert_eq!(length, whole.len());
    for cut in 0..whole.len() {
        let Some((part, length)) = decode_all(&whole[..cut]) else { continue };
        assert!(length <= cut && all.head == part.head && part.intents.len() <= all.intents.len());
        for ((intent, fate), (whole, last)) in part.intents.iter().zip(&all.intents) {
            assert!(intent == whole && (*fate == Fate::Open || fate == last));
        }
    }
    // A changed byte ends it, too.
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        if let Some((part, _)) = decode_all(&changed) {
            assert!(part.intents.iter().zip(&all.intents).all(|((intent, _), (whole, _))| intent == whole));
            assert_eq!(part.head, all.head);
        }
    }
    // And what is cut off is cut away before more is written.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let mut journal = Journal::open(&bench.state, &id).unwrap();
    assert!(!journal.recorded().finished);
    journal.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_journal_or_none_without_a_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        decode_all(&bytes);
        decode_all(&[b"RFUNDO01", bytes.as_slice()].concat());
    }
}
