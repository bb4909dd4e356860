use std::time::Duration;

use proptest::prelude::*;
use ringfence_policy::{Bytes, Cpus, TimeSpan};

fn check<T: std::str::FromStr + std::fmt::Display>(text: &str, shown: Option<&str>) {
    assert_eq!(text.parse::<T>().ok().map(|value| value.to_string()).as_deref(), shown, "{text:?}");
}

#[test]
fn bytes_are_read_with_any_unit_and_shown_with_the_shortest() {
    check::<Bytes>("512MiB", Some("512MiB"));
    check::<Bytes>("1024MiB", Some("1GiB"));
    check::<Bytes>("1.5GiB", Some("1536MiB"));
    check::<Bytes>("1GB", Some("1GB"));
    check::<Bytes>("1500", Some("1500B"));
    check::<Bytes>("1000", Some("1KB"));
    check::<Bytes>("0", Some("0B"));
    check::<Bytes>("2 GiB", Some("2GiB"));
}

#[test]
fn bytes_that_two_programs_would_read_differently_are_refused() {
    for text in ["512m", "512M", "512mb", "512Mb", "1g", "64k", "1K", "512mib"] {
        let problem = text.parse::<Bytes>().expect_err(text);
        assert!(problem.advice.starts_with("write `"), "{problem}");
    }
    assert_eq!("512m".parse::<Bytes>().unwrap_err().advice, "write `512MiB`");
}

#[test]
fn hostile_amounts_are_refused() {
    for text in [
        "",
        "-1",
        "+1",
        "NaN",
        "nan",
        "inf",
        ".5MiB",
        "5.MiB",
        "1e9",
        "0x10",
        "1_000",
        "18446744073709551616",
        "99999999TiB",
        "1.0000001KiB",
        "1MiB1",
        "MiB",
        "1  MiB",
        "１MiB",
        "1\0MiB",
        "99999999999999999999999999999999999999999999",
    ] {
        check::<Bytes>(text, None);
    }
}

#[test]
fn times_are_read_with_a_unit_and_shown_in_seconds() {
    check::<TimeSpan>("120s", Some("120s"));
    check::<TimeSpan>("1.5s", Some("1.5s"));
    check::<TimeSpan>("250ms", Some("250ms"));
    check::<TimeSpan>("10m", Some("600s"));
    check::<TimeSpan>("1h", Some("3600s"));
    check::<TimeSpan>("168h", Some("604800s"));
}

#[test]
fn a_time_of_zero_negative_endless_or_without_unit_is_refused() {
    for text in [
        "0",
        "0s",
        "0ms",
        "0.0s",
        "-5s",
        "-1",
        "NaN",
        "NaNs",
        ".nan",
        "infs",
        "9223372036854775808s",
        "9223372036854775808",
        "169h",
        "604801s",
        "5",
        "5.5",
        "1d",
        "5 minutes",
        "",
        "s",
        "1e3s",
        "0.0000000001s",
        "5S",
    ] {
        check::<TimeSpan>(text, None);
    }
    assert_eq!("120".parse::<TimeSpan>().unwrap_err().advice, "write `120s` for seconds (or ms, m, h)");
    assert!(TimeSpan::new(Duration::ZERO).is_err());
    assert!(TimeSpan::new(Duration::MAX).is_err());
}

#[test]
fn processors_are_read_to_the_thousandth() {
    check::<Cpus>("1.5", Some("1.5"));
    check::<Cpus>("2", Some("2"));
    check::<Cpus>("0.001", Some("0.001"));
    for text in ["0", "0.0", "0.0001", "-1", "NaN", "4097", "1e1", "99999999999", ""] {
        check::<Cpus>(text, None);
    }
    assert!(Cpus::from_millis(0).is_err());
}

#[test]
fn quantities_survive_json() {
    let bytes: Bytes = serde_json::from_str("\"512MiB\"").unwrap();
    assert_eq!(serde_json::to_string(&bytes).unwrap(), "\"512MiB\"");
    assert_eq!(serde_json::from_str::<Bytes>("1048576").unwrap(), bytes_of(1 << 20));
    let cpus: Cpus = serde_json::from_str("1.5").unwrap();
    assert_eq!(serde_json::to_string(&cpus).unwrap(), "1.5");
    assert!(serde_json::from_str::<TimeSpan>("5").is_err());
    assert!(serde_json::from_str::<Cpus>("-0.5").is_err());
}

fn bytes_of(count: u64) -> Bytes {
    Bytes::new(count)
}

proptest! {
    #[test]
    fn any_amount_reads_back_as_it_was_shown(count: u64) {
        let bytes = Bytes::new(count);
        prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
    }

    #[test]
    fn any_time_reads_back_as_it_was_shown(nanos in 1_u64..=7 * 24 * 3600 * 1_000_000_000) {
        let time = TimeSpan::new(Duration::from_nanos(nanos)).unwrap();
        prop_assert_eq!(time.to_string().parse::<TimeSpan>().unwrap(), time);
    }

    #[test]
    fn any_share_reads_back_as_it_was_shown(millis in 1_u32..=4_096_000) {
        let cpus = Cpus::from_millis(millis).unwrap();
        prop_assert_eq!(cpus.to_string().parse::<Cpus>().unwrap(), cpus);
        let json = serde_json::to_string(&cpus).unwrap();
        prop_assert_eq!(serde_json::from_str::<Cpus>(&json).unwrap(), cpus);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}|[0-9.]{0,30}[a-zA-Z ]{0,4}") {
        for shown in [
            text.parse::<Bytes>().map(|it| it.to_string()),
            text.parse::<TimeSpan>().map(|it| it.to_string()),
            text.parse::<Cpus>().map(|it| it.to_string()),
        ] {
            prop_assert!(shown.is_ok_and(|it| !it.is_empty()) || !text.is_empty() || text.is_empty());
        }
    }
}
