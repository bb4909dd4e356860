//! Measures one decision with 10,000 rules. `cargo bench -p ringfence-egress --bench decide`.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::hint::black_box;
use std::time::Instant;

use ringfence_egress::{Access, BadHost, Host, Rule, Rules, Scheme, Target, UrlPath, decide};
use ringfence_policy::{Invalid, NetRule};

const RULES: usize = 10_000;
const ROUNDS: usize = 200_000;

#[derive(Debug)]
#[allow(dead_code, reason = "shown when the benchmark fails")]
enum Failed {
    Rule(Invalid),
    Host(BadHost),
}

fn main() -> Result<(), Failed> {
    let mut rules = Rules::none();
    for number in 0..RULES {
        let wild = if number % 2 == 0 { "*." } else { "" };
        let text = format!("{wild}service{number}.region{}.example.com", number % 40);
        let rule = text.parse::<NetRule>().map_err(Failed::Rule)?;
        rules = match number % 3 {
            0 => rules.deny(Rule::new(rule, text)),
            _ => rules.allow(Rule::new(rule, text)),
        };
    }
    let deep = format!("{}service4.region4.example.com", "a.".repeat(100));
    for (name, host) in [
        ("exact", "service7.region7.example.com"),
        ("subdomain", "x.service8.region8.example.com"),
        ("deep", deep.as_str()),
        ("denied", "service9.region9.example.com"),
        ("unknown", "nowhere.example.org"),
    ] {
        let path = UrlPath::new("/repos/acme/x");
        let start = Instant::now();
        for _ in 0..ROUNDS {
            let host = Host::parse(black_box(host)).map_err(Failed::Host)?;
            let access = Access::Request { scheme: Scheme::Https, method: "GET", path: &path };
            black_box(decide(&rules, &Target { host: &host, port: 443, access }));
        }
        let each = start.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64;
        println!("egress_decide_{name}_us {each:.3} us");
    }
    Ok(())
}
