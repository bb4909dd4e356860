use std::collections::BTreeSet;

use ringfence_guest::far::{Begin, FarWorkspace};
use ringfence_guest::relay::FarDoor;
use ringfence_linux::wall::{Contained, Kernel};

use super::super::cgroup_view::CgroupView;
use super::super::labels::{ContainerKind, Labels, Owner};
use super::super::spec::{GuestFrom, GuestPlace, ImageId, ReadOnlyVolume, Spec, User, tests::spec};
use super::super::wanted::hash;
use super::super::ways::Way;
use super::*;
use crate::backend::WallError;

const HOUR: Duration = Duration::from_secs(3600);

/// What was made, and what became of it.
#[derive(Debug, Default)]
struct Yard {
    made: Vec<u32>,
    ended: BTreeSet<u32>,
    dead: BTreeSet<u32>,
    at_once: usize,
    most_at_once: usize,
    fails: bool,
}

#[derive(Debug)]
struct Fake {
    key: Key,
    yard: Arc<Mutex<Yard>>,
}

#[derive(Debug)]
struct FakeMade {
    number: u32,
    yard: Arc<Mutex<Yard>>,
}

impl Drop for FakeMade {
    fn drop(&mut self) {
        self.yard.lock().unwrap().ended.insert(self.number);
    }
}

impl Recipe for Fake {
    type Made = FakeMade;

    fn key(&self) -> Key {
        self.key
    }

    async fn make(&self) -> Result<FakeMade, StartError> {
        {
            let mut yard = self.yard.lock().unwrap();
            yard.at_once += 1;
            yard.most_at_once = yard.most_at_once.max(yard.at_once);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut yard = self.yard.lock().unwrap();
        yard.at_once -= 1;
        if yard.fails {
            return Err(StartError::Wall(WallError("no room".to_owned())));
        }
        let number = u32::try_from(yard.made.len()).unwrap();
        yard.made.push(number);
        Ok(FakeMade { number, yard: Arc::clone(&self.yard) })
    }

    async fn is_alive(made: &mut FakeMade) -> bool {
        !made.yard.lock().unwrap().dead.contains(&made.number)
    }

    async fn end(made: FakeMade) {
        tokio::task::yield_now().await;
        drop(made);
    }
}

fn recipe(yard: &Arc<Mutex<Yard>>, kind: u8, bytes: u64) -> Arc<Fake> {
    let key = Key { hash: [kind; 32], room: Room { bytes, files: 0 } };
    Arc::new(Fake { key, yard: Arc::clone(yard) })
}

async fn take(pool: &Pool<Fake>, recipe: &Arc<Fake>) -> Option<FakeMade> {
    let _refill = pool.refill_later();
    pool.take(recipe, |_| true).await.made
}

async fn settled(pool: &Pool<Fake>) {
    pool.0.until(|shelf| shelf.making == 0).await;
}

fn ended(yard: &Arc<Mutex<Yard>>) -> Vec<u32> {
    yard.lock().unwrap().ended.iter().copied().collect()
}

#[tokio::test(start_paused = true)]
async fn each_that_waits_is_used_once_and_made_up_for() {
    let yard = Arc::default();
    let (pool, wanted) = (Pool::new(3, HOUR), recipe(&yard, 1, 0));
    assert!(take(&pool, &wanted).await.is_none(), "nothing waits before it is asked for");
    assert_eq!(pool.fill(Arc::clone(&wanted)).await.unwrap(), 3);
    assert_eq!(yard.lock().unwrap().most_at_once, AT_ONCE);
    let mut seen = BTreeSet::new();
    for _ in 0..7 {
        let made = take(&pool, &wanted).await.unwrap();
        assert!(seen.insert(made.number), "{} was used twice", made.number);
        drop(made);
        settled(&pool).await;
        assert_eq!(pool.0.shelf().ready.len(), 3);
    }
    assert_eq!(yard.lock().unwrap().made.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_room_never_makes_one() {
    let yard = Arc::default();
    let (pool, wanted) = (Pool::new(0, HOUR), recipe(&yard, 1, 0));
    assert_eq!(pool.fill(Arc::clone(&wanted)).await.unwrap(), 0);
    assert!(take(&pool, &wanted).await.is_none());
    settled(&pool).await;
    assert!(!pool.is_used() && yard.lock().unwrap().made.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_asks_for_anything_else_gets_none_of_them() {
    let yard = Arc::default();
    let (pool, wanted) = (Pool::new(2, HOUR), recipe(&yard, 1, 0));
    pool.fill(Arc::clone(&wanted)).await.unwrap();
    assert!(take(&pool, &recipe(&yard, 2, 0)).await.is_none());
    assert_eq!((pool.0.shelf().ready.len(), ended(&yard)), (2, vec![]), "the others go on waiting");
    assert!(take(&pool, &wanted).await.is_some(), "the twin");
}

/// A run that makes what it does not find.
async fn run(pool: &Pool<Fake>, recipe: &Arc<Fake>) -> Option<u32> {
    let _refill = pool.refill_later();
    let found = pool.take(recipe, |_| true).await.made;
    if found.is_none() && pool.missed(recipe.key()) {
        pool.follow(Arc::clone(recipe));
    }
    found.map(|made| made.number)
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_asked_for_twice_in_a_row_waits_from_then_on_and_one_that_is_asked_for_now_and_then_does_not() {
    let yard = Arc::default();
    let (pool, first, other, third) =
        (Pool::new(2, HOUR), recipe(&yard, 1, 0), recipe(&yard, 2, 0), recipe(&yard, 3, 0));
    pool.fill(Arc::clone(&first)).await.unwrap();
    for (asked, is_found) in
        [(&other, false), (&first, true), (&other, false), (&third, false), (&other, false), (&first, true)]
    {
        assert_eq!(run(&pool, asked).await.is_some(), is_found);
        settled(&pool).await;
    }
    let waiting: Vec<u32> = pool.0.shelf().ready.iter().map(|waiting| waiting.made.number).collect();
    assert!(run(&pool, &other).await.is_none() && run(&pool, &other).await.is_none());
    settled(&pool).await;
    pool.0.until(|shelf| shelf.ending == 0).await;
    assert!(waiting.iter().all(|number| ended(&yard).contains(number)), "those of before are gone: {waiting:?}");
    let asked = pool.0.shelf().ready.len();
    pool.follow(Arc::clone(&other));
    assert_eq!((asked, pool.0.shelf().ready.len()), (2, 2), "who says so once more changes nothing");
    assert!(run(&pool, &other).await.is_some(), "and the others are there");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_was_to_be_filled_in_vain_has_the_kind_of_the_next_run_and_a_drained_one_has_none() {
    let yard = Arc::default();
    let (pool, wanted) = (Pool::new(1, HOUR), recipe(&yard, 1, 0));
    for _ in 0..3 {
        assert!(run(&pool, &wanted).await.is_none(), "nobody said that any should wait");
    }
    pool.open();
    assert!(run(&pool, &wanted).await.is_none());
    settled(&pool).await;
    assert!(run(&pool, &wanted).await.is_some());
    pool.drain().await;
    for _ in 0..3 {
        assert!(run(&pool, &wanted).await.is_none());
        settled(&pool).await;
    }
    let yard = yard.lock().unwrap();
    assert_eq!(yard.made.len(), yard.ended.len(), "nothing is left of a drained one");
}

#[tokio::test(start_paused = true)]
async fn those_without_room_for_the_workspace_are_replaced_by_some_that_have_it() {
    let yard = Arc::default();
    let (pool, larger) = (Pool::new(2, HOUR), recipe(&yard, 1, 512));
    pool.fill(recipe(&yard, 1, 256)).await.unwrap();
    assert!(take(&pool, &larger).await.is_none());
    settled(&pool).await;
    assert_eq!(ended(&yard), [0, 1]);
    assert!(take(&pool, &larger).await.unwrap().number >= 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_died_while_it_waited_is_thrown_away() {
    let yard: Arc<Mutex<Yard>> = Arc::default();
    let (pool, wanted) = (Pool::new(2, HOUR), recipe(&yard, 1, 0));
    pool.fill(Arc::clone(&wanted)).await.unwrap();
    yard.lock().unwrap().dead.insert(0);
    assert_eq!(take(&pool, &wanted).await.unwrap().number, 1);
    settled(&pool).await;
    assert!(ended(&yard).contains(&0));
    assert_eq!(pool.0.shelf().ready.len(), 2);
    yard.lock().unwrap().dead.extend([2, 3]);
    let Taken { made, dead } = pool.take(&wanted, |_| true).await;
    assert!(made.is_none() && dead == 2, "all are dead: a run starts as ever, and says so");
    let Taken { made, dead } = pool.take(&wanted, |_| true).await;
    assert!(made.is_none() && dead == 0, "the twin: none waits");
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_fit_is_thrown_away_and_counted_and_another_made() {
    let yard: Arc<Mutex<Yard>> = Arc::default();
    let (pool, wanted) = (Pool::new(2, HOUR), recipe(&yard, 1, 0));
    pool.fill(Arc::clone(&wanted)).await.unwrap();
    let refill = pool.refill_later();
    let Taken { made, dead } = pool.take(&wanted, |made| made.number != 0).await;
    let taken = made.unwrap();
    assert_eq!((taken.number, dead), (1, 1));
    drop(refill);
    pool.0.until(|shelf| shelf.making == 0 && shelf.ending == 0).await;
    assert_eq!((ended(&yard), pool.0.shelf().ready.len()), (vec![0], 2));
    let refill = pool.refill_later();
    let Taken { made, dead } = pool.take(&wanted, |_| false).await;
    assert!(made.is_none() && dead == 2, "none fits: a run starts as ever, and says so");
    drop(refill);
    pool.0.until(|shelf| shelf.making == 0 && shelf.ending == 0).await;
    assert_eq!(ended(&yard), [0, 2, 3]);
    let Taken { made, dead } = pool.take(&wanted, |_| true).await;
    assert_eq!((made.unwrap().number, dead), (4, 0), "the twin: what was made in their place");
}

#[tokio::test(start_paused = true)]
async fn who_drains_waits_for_those_that_are_being_ended_and_not_for_those_that_were_to_be_made() {
    let yard: Arc<Mutex<Yard>> = Arc::default();
    let (pool, wanted) = (Pool::new(2, HOUR), recipe(&yard, 1, 0));
    pool.fill(Arc::clone(&wanted)).await.unwrap();
    yard.lock().unwrap().dead.extend([0, 1]);
    assert!(take(&pool, &wanted).await.is_none());
    let begin = tokio::time::Instant::now();
    pool.drain().await;
    assert_eq!(ended(&yard), [0, 1]);
    assert_eq!(begin.elapsed(), Duration::ZERO, "a pause before one is made ends with the pool");
    assert_eq!(yard.lock().unwrap().made.len(), 2, "none was made in their place");
    assert_eq!(pool.fill(Arc::clone(&wanted)).await.unwrap(), 2, "the twin: it can be filled again");
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_takes_ends_and_comes_back_with_the_next_run() {
    let yard = Arc::default();
    let (pool, wanted) = (Pool::new(1, HOUR), recipe(&yard, 1, 0));
    pool.fill(Arc::clone(&wanted)).await.unwrap();
    tokio::time::sleep(HOUR / 2).await;
    assert!(ended(&yard).is_empty(), "the twin: before its time");
    tokio::time::sleep(HOUR).await;
    assert_eq!(ended(&yard), [0]);
    assert_eq!(yard.lock().unwrap().made.len(), 1, "none is made while nobody runs anything");
    assert!(take(&pool, &wanted).await.is_none());
    settled(&pool).await;
    assert!(take(&pool, &wanted).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn drained_and_dropped_pools_leave_nothing_not_even_what_is_being_made() {
    let yard = Arc::default();
    let wanted = recipe(&yard, 1, 0);
    let pool = Pool::new(3, HOUR);
    pool.fill(Arc::clone(&wanted)).await.unwrap();
    let taken = take(&pool, &wanted).await.unwrap();
    pool.drain().await;
    assert_eq!(pool.0.shelf().making, 0);
    assert!(!ended(&yard).contains(&taken.number), "what was taken is its run's");
    assert_eq!(ended(&yard).len() + 1, yard.lock().unwrap().made.len());
    assert!(take(&pool, &wanted).await.is_none(), "no more are made");
    settled(&pool).await;
    assert_eq!(pool.fill(Arc::clone(&wanted)).await.unwrap(), 3, "the twin: it can be filled again");
    drop(take(&pool, &wanted).await);
    drop(pool);
    drop(taken);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ended(&yard), yard.lock().unwrap().made);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_is_told_to_whoever_waits_and_not_tried_without_end() {
    let yard: Arc<Mutex<Yard>> = Arc::default();
    let (pool, wanted) = (Pool::new(2, HOUR), recipe(&yard, 1, 0));
    yard.lock().unwrap().fails = true;
    assert!(pool.fill(Arc::clone(&wanted)).await.is_err());
    tokio::time::sleep(HOUR).await;
    assert_eq!(pool.0.shelf().making, 0);
    yard.lock().unwrap().fails = false;
    assert!(take(&pool, &wanted).await.is_none());
    settled(&pool).await;
    assert!(take(&pool, &wanted).await.is_some(), "the next run had it tried again");
}

#[test]
fn the_key_knows_of_everything_inside_and_of_no_run() {
    let begin = |uid, workspace: FarWorkspace| {
        let contained = Contained {
            uid,
            gid: 1000,
            kernel: Kernel::Host,
            workspace: "/work".into(),
            writable: Vec::new(),
            rlimits: Vec::new(),
            paths: Vec::new(),
            memory: None,
            processes: None,
            processors: None,
        };
        Begin { contained, workspace, door: None }
    };
    let told = begin(1000, FarWorkspace::Kept);
    let of = |spec: &Spec| hash(spec, &told, Way::Filled, &[]).unwrap();
    let plain = spec();
    let labels = Labels::new("another", &Owner::current().unwrap(), ContainerKind::Pool).unwrap();
    assert_eq!(of(&plain), of(&Spec { labels, ..spec() }));
    assert_eq!(of(&plain), of(&Spec { guest_at: GuestPlace::new().unwrap(), ..spec() }));
    let user = User { uid: plain.user.uid + 1, ..plain.user };
    let mut larger = spec();
    larger.tmpfs[0].bytes += 1;
    let others = [
        // A name that leads to another image since: what waits has the one from before.
        Spec { image: ImageId::parse(&"b".repeat(64)).unwrap(), ..spec() },
        Spec { image_volumes: Vec::new(), ..spec() },
        Spec { user, ..spec() },
        Spec { guest: GuestFrom::File("/opt/another".into()), ..spec() },
        larger,
        Spec { binds: Vec::new(), ..spec() },
        Spec { volumes: vec![ReadOnlyVolume { name: "ringfence-workspace-1".into(), at: "/w".into() }], ..spec() },
        Spec { memory_bytes: plain.memory_bytes.map(|most| most + 1), ..spec() },
        Spec { processes: plain.processes.map(|most| most + 1), ..spec() },
        Spec { nano_cpus: None, ..spec() },
        Spec { open_files: plain.open_files + 1, ..spec() },
        Spec { file_size: None, ..spec() },
        Spec { shared_memory_bytes: plain.shared_memory_bytes + 1, ..spec() },
        Spec { cgroups: CgroupView::Nothing, ..spec() },
        Spec { runtime: Some("other".to_owned()), ..spec() },
        Spec { image_variables: vec!["X".to_owned()], ..spec() },
        Spec { seccomp: None, ..spec() },
        Spec { hostname: "other".to_owned(), ..spec() },
        Spec { ports_from: None, ..spec() },
        Spec { engine_socket: None, ..spec() },
    ];
    for other in others {
        assert_ne!(of(&plain), of(&other), "{other:?}");
    }
    assert_ne!(of(&plain), hash(&plain, &told, Way::Laid, &[]).unwrap());
    let names = "127.0.0.1:53".parse().unwrap();
    let with_a_door = |places: &[&str]| {
        let places = places.iter().map(|at| at.parse().unwrap()).collect();
        let door = Some(FarDoor { port: 3128, names, places, connections: 1 });
        Begin { door, ..begin(1000, FarWorkspace::Kept) }
    };
    let (one, other) = (with_a_door(&[]), with_a_door(&["127.0.0.1:5432"]));
    assert_ne!(hash(&plain, &one, Way::Filled, &[]).unwrap(), hash(&plain, &other, Way::Filled, &[]).unwrap());
    for told in [begin(1001, FarWorkspace::Kept), begin(1000, FarWorkspace::Forgotten), one] {
        assert_ne!(of(&plain), hash(&plain, &told, Way::Filled, &[]).unwrap(), "{told:?}");
    }
}
