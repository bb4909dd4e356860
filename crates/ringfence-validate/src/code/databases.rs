//! Libraries that speak to databases: which of them is somebody else's, and what is destroyed there.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use super::call::{Given, Place};
use super::role::Slot;
use super::value::{Held, Value};
use super::walk::Walk;
use crate::analysis::{Fact, SystemAct, Unknown};
use crate::text::{Piece, Text};

/// The databases that a program speaks to, as an attribute that no program has.
const PLACES: &str = "(databases)";

const MODULES: &[&str] = &[
    "psycopg2",
    "psycopg",
    "asyncpg",
    "aiopg",
    "pymysql",
    "aiomysql",
    "MySQLdb",
    "mysql",
    "mysql2",
    "mariadb",
    "pg",
    "pg-promise",
    "postgres",
    "slonik",
    "knex",
    "sequelize",
    "typeorm",
    "sqlalchemy",
    "databases",
    "peewee",
    "pymongo",
    "motor",
    "mongodb",
    "mongoose",
    "redis",
    "ioredis",
    "oracledb",
    "cx_Oracle",
    "pyodbc",
    "pymssql",
    "mssql",
    "clickhouse_driver",
    "clickhouse_connect",
    "cassandra",
    "neo4j",
    "elasticsearch",
    "@elastic/elasticsearch",
    "snowflake",
    "@prisma/client",
];

/// Methods that are given a text of SQL.
const ASKS: &[&str] = &[
    "execute",
    "executemany",
    "exec_driver_sql",
    "query",
    "raw",
    "unsafe",
    "exec",
    "run",
    "none",
    "any",
    "fetch",
    "$executeRawUnsafe",
    "$queryRawUnsafe",
    "command",
    "batch",
    "multi",
];

/// Methods that destroy a whole database, or all of its tables.
const DROPS: &[&str] = &[
    "dropDatabase",
    "drop_database",
    "flushall",
    "flushdb",
    "flushAll",
    "flushDb",
    "FLUSHALL",
    "drop_all",
    "drop_tables",
    "delete_index",
    "dropTable",
    "dropTableIfExists",
    "dropSchema",
    "dropSchemaIfExists",
    "dropCollection",
    "drop_collection",
    "purge_queue",
];

/// What leaves the database, or starts something where it runs.
const LEAVES: &[&str] = &[
    " program ",
    "xp_cmdshell",
    "pg_read_file",
    "pg_read_binary_file",
    "pg_ls_dir",
    "lo_import",
    "lo_export",
    "load_file",
    "into outfile",
    "into dumpfile",
    "sys_exec",
    "sys_eval",
    "load_extension",
    "infile",
];

/// The module that a full name begins with.
pub(super) fn module_of(name: &str) -> &str {
    let whole = name.split('(').next().unwrap_or(name);
    // A module of somebody has two parts.
    let first = if whole.starts_with('@') { whole.find('/').map_or(0, |slash| slash + 1) } else { 0 };
    let rest = whole.get(first..).unwrap_or_default();
    let end = rest.find(['.', '/']).map_or(whole.len(), |end| first + end);
    whole.get(..end).unwrap_or(whole)
}

impl Walk<'_, '_> {
    /// A call of a library that speaks to a database.
    pub(super) fn by_database(&mut self, name: &str, given: &Given) {
        if !MODULES.contains(&module_of(name)) {
            return;
        }
        self.note_places(name, given);
        let method = name.rsplit('.').next().unwrap_or(name);
        let index = name.ends_with("indices.delete")
            || method == "sync"
                && given.slot(&Slot::Named("force")).is_some_and(|(force, _)| force.truth == Some(true));
        if (DROPS.contains(&method) || index) && self.is_elsewhere() {
            self.destroys(method, given);
        }
        if ASKS.contains(&method)
            && let Some(text) = given.args.first()
        {
            for text in text.texts.clone().iter() {
                self.asks(text, given);
            }
        }
    }

    /// Where the databases are, as far as the calls say it.
    fn note_places(&mut self, name: &str, given: &Given) {
        const CLIENTS: &[&str] = &["Redis", "StrictRedis", "ioredis", "Elasticsearch", "MongoClient", "Cluster"];
        let is_client = CLIENTS.contains(&name.trim_end_matches("()").rsplit('.').next().unwrap_or(name));
        const KEYS: &[&str] = &[
            "host",
            "hostname",
            "url",
            "uri",
            "connectionString",
            "dsn",
            "server",
            "servers",
            "hosts",
            "node",
            "connection",
        ];
        let mut places = Value::default();
        let mut take = |held: &Held, is_host: bool| {
            let items = held.items.iter().flat_map(|items| items.iter()).flat_map(|item| item.texts.iter());
            for text in held.texts.iter().chain(items) {
                hosts_of(&written(text, UNCLEAR), is_host).into_iter().for_each(|host| places.add(&Value::known(host)));
            }
        };
        // What is called so is nobody's own.
        let is_live = |held: &Held| {
            let says = |name: &str| name.contains("PROD") || name.contains("LIVE_");
            held.names.iter().any(|name| says(name))
                || held.texts.iter().any(|text| text.as_known().is_none() && says(&text.to_string()))
        };
        for arg in &given.args {
            if is_live(arg) {
                take(&Rc::new(Value::known("production.elsewhere")), true);
            }
            let is_host =
                |text: &Text| text.as_known().is_some_and(|host| host.contains('.') && !host.contains(['/', ' ', '(']));
            take(arg, is_client && arg.texts.iter().any(is_host));
            let mut within: Vec<(Held, usize)> = vec![(Rc::clone(arg), 0)];
            while let Some((object, deep)) = within.pop() {
                for (key, field) in object.fields.iter().flat_map(|fields| fields.iter().take(16)) {
                    if KEYS.contains(&&**key) {
                        take(field, true);
                    }
                    if deep < 2 {
                        within.push((Rc::clone(field), deep + 1));
                    }
                }
            }
        }
        for (key, held, _) in given.named.iter().filter(|(key, _, _)| KEYS.contains(&key.as_str())) {
            take(held, key != "url");
        }
        if !places.texts.is_empty() {
            self.scopes.set_attribute(PLACES, &Rc::new(places));
        }
    }

    fn hosts(&mut self) -> Vec<String> {
        let held = self.scopes.attribute(PLACES);
        held.iter().flat_map(|held| held.texts.iter()).map(ToString::to_string).collect()
    }

    /// Whether one of the databases is known to be on another machine.
    fn is_elsewhere(&mut self) -> bool {
        self.hosts().iter().any(|host| side(host) == Side::Far)
    }

    fn is_here(&mut self) -> bool {
        let hosts = self.hosts();
        !hosts.is_empty() && hosts.iter().all(|host| side(host) == Side::Near)
    }

    /// A text of SQL is carried out.
    fn asks(&mut self, text: &Text, given: &Given) {
        let known = written(text, "?");
        if known.len() > 64 * 1024 {
            self.tell(given.span, Fact::Unknown { unknown: Unknown::TooMuch { bound: "sql" } });
            return;
        }
        // Servers do not agree on where a text ends and a remark begins: either may be what is carried out.
        let lower = [known.clone(), without_remarks(&known)]
            .map(|sql| sql.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase());
        if LEAVES.iter().any(|word| lower.iter().any(|sql| sql.contains(word))) {
            // What a client would do with it says the same.
            let place = Place { span: given.span, literal: None };
            let words = vec![Rc::new(Value::known("-c")), Rc::new(Value::known(known.as_str()))];
            let alone = Given { span: given.span, ..Given::default() };
            self.program(Some((Rc::new(Value::known("psql")), place)), Some(words), &alone);
        }
        for part in lower.iter().flat_map(|sql| sql.split(';')).map(str::trim) {
            let part = part.trim_start_matches('(');
            let whole = part.starts_with("drop database")
                || part.starts_with("drop owned")
                || part.starts_with("drop schema") && part.contains("cascade")
                || part.starts_with("drop user")
                || part.starts_with("drop role");
            let tables = part.starts_with("drop table")
                || part.starts_with("truncate")
                || part.starts_with("drop tablespace")
                || part.starts_with("delete from") && !part.contains(" where ");
            let each = tables && part.contains('?') && part.starts_with("drop table");
            let elsewhere = self.is_elsewhere();
            if whole && (elsewhere || (!self.is_here() && !is_tried(part)))
                || tables && elsewhere
                || each && !self.is_here()
            {
                self.destroys(part, given);
                return;
            }
        }
    }

    pub(super) fn destroys(&mut self, what: &str, given: &Given) {
        let about = Text::known(what.chars().take(80).collect::<String>());
        self.tell(given.span, Fact::System { act: SystemAct::Records, about });
    }
}

/// Stands for what is not known of a host.
const UNCLEAR: &str = "\u{0}";

/// A text with a sign in the place of what is not known.
fn written(text: &Text, unknown: &str) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Known(known) | Piece::Pattern(known) => known.clone(),
        Piece::Hole(_) => unknown.to_owned(),
    };
    text.pieces().iter().map(piece).collect()
}

/// The hosts that an address, or a list of settings, leads to.
fn hosts_of(said: &str, is_host: bool) -> Vec<String> {
    let named = |settings: &str| -> Vec<String> {
        let values = settings.split([' ', '&', ';', '?']).filter_map(|setting| {
            let (key, value) = setting.split_once('=')?;
            matches!(key.trim().to_ascii_lowercase().as_str(), "host" | "hostaddr").then_some(value)
        });
        values.flat_map(|value| value.trim_matches(['\'', '"']).split(',')).map(without_port).collect()
    };
    if said.starts_with("sqlite") {
        return vec!["localhost".to_owned()];
    }
    let Some((_, rest)) = said.split_once("://") else {
        let named = named(said);
        let whole = is_host && named.is_empty();
        return if whole { said.split(',').map(without_port).collect() } else { named };
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let mut all = named(behind);
    // Where the address names none, its settings may.
    if all.is_empty() || !hosts.is_empty() {
        all.extend(hosts.split(',').map(without_port));
    }
    all
}

/// `HOST:PORT`, `[ADDRESS]:PORT`, or a socket's path.
fn without_port(host: &str) -> String {
    let host = host.trim();
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.to_owned();
    }
    match host {
        socket if socket.starts_with('/') => "localhost".to_owned(),
        address if address.parse::<Ipv6Addr>().is_ok() => address.to_owned(),
        host => host.split([':', '/', '?', '#']).next().unwrap_or_default().to_owned(),
    }
}

/// Where a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The developer's own: this machine, or a service beside it by a bare name.
    Near,
    Far,
    /// Not known.
    Unclear,
}

fn side(host: &str) -> Side {
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        let address = address.to_canonical();
        return if address.is_loopback() || address.is_unspecified() { Side::Near } else { Side::Far };
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return if address.is_loopback() || address.is_unspecified() { Side::Near } else { Side::Far };
    }
    let is_name = host.chars().all(|sign| sign.is_ascii_alphanumeric() || "._-".contains(sign));
    if !is_name || !host.is_empty() && host.chars().all(|sign| sign.is_ascii_digit() || sign == '.') {
        return Side::Unclear;
    }
    if !host.contains('.') || host == "host.docker.internal" { Side::Near } else { Side::Far }
}

/// SQL without what is written for people; what only some servers skip is left.
fn without_remarks(sql: &str) -> String {
    let mut bare = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(['-', '/', '\'', '"', '`']) {
        let (before, found) = rest.split_at(at);
        bare.push_str(before);
        let skipped = if found.starts_with("--") {
            found.find('\n').unwrap_or(found.len())
        } else if found.starts_with("/*") && !found.starts_with("/*!") {
            found.get(2..).and_then(|inside| inside.find("*/")).map_or(found.len(), |end| end + 4)
        } else {
            // A name or a text in quotes stays whole.
            let sign = found.chars().next().unwrap_or_default();
            let inside = found.get(1..).unwrap_or_default();
            let quoted = if matches!(sign, '-' | '/') { None } else { inside.find(sign) };
            let end = quoted.map_or(1, |end| end + 2);
            bare.push_str(found.get(..end).unwrap_or_default());
            rest = found.get(end..).unwrap_or_default();
            continue;
        };
        bare.push(' ');
        rest = found.get(skipped..).unwrap_or_default();
    }
    bare + rest
}

/// Whether all that a command drops is called like something to try things out with.
fn is_tried(part: &str) -> bool {
    let names = part.split_whitespace().skip(2).filter(|word| !matches!(*word, "if" | "exists" | "by"));
    let names: Vec<&str> = names.take_while(|word| !matches!(*word, "cascade" | "with" | "restrict")).collect();
    let is_one = |name: &str| ["test", "tmp", "temp", "_dev", "scratch"].iter().any(|word| name.contains(word));
    let names = names.join(" ");
    !names.is_empty() && names.split(',').all(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::told::facts;
    use crate::language::Language;

    fn is_destroyed(source: &str) -> bool {
        facts(Language::Python, source).iter().any(|line| line.starts_with("system Records"))
    }

    #[test]
    fn a_database_is_near_only_where_its_host_is_known_to_be() {
        let cases: &[(&str, &[&str], Side)] = &[
            ("postgresql://u:p@localhost/app", &["localhost"], Side::Near),
            ("postgresql://u:p@db:5432/app", &["db"], Side::Near),
            ("postgresql:///app", &[""], Side::Near),
            ("postgresql://u@[::1]:5432/app", &["::1"], Side::Near),
            ("postgresql://u@[2001:db8::7]/app", &["2001:db8::7"], Side::Far),
            ("postgresql://u:p@db.corp.example/app?user=x@localhost", &["db.corp.example"], Side::Far),
            ("postgresql://db.corp.example#@localhost", &["db.corp.example"], Side::Far),
            ("postgresql:///app?host=db.corp.example", &["db.corp.example"], Side::Far),
            ("postgresql://u@127.0.0.1.stranger.example/app", &["127.0.0.1.stranger.example"], Side::Far),
            ("postgresql://\0:\0@\0/app", &["\0"], Side::Unclear),
            ("postgresql://\0/app", &["\0"], Side::Unclear),
            ("postgresql://u@\0.internal/app", &["\0.internal"], Side::Unclear),
            ("postgresql://u@3232235777/app", &["3232235777"], Side::Unclear),
            ("dbname=a host=db.corp.example port=5432", &["db.corp.example"], Side::Far),
            ("mysql://u@…/app", &["…"], Side::Unclear),
            ("sqlite:///app.db", &["localhost"], Side::Near),
        ];
        for (said, hosts, expected) in cases {
            assert_eq!(hosts_of(said, false), *hosts, "{said}");
            assert!(hosts.iter().all(|host| side(host) == *expected), "{said}");
        }
        assert_eq!(hosts_of("/var/run/postgresql", true), ["localhost"]);
        assert_eq!(hosts_of("a.corp.example:5432,db", true), ["a.corp.example", "db"]);
    }

    #[test]
    fn a_whole_database_is_dropped_unless_it_is_near_or_its_own_name_says_that_it_is_tried() {
        let at =
            |url: &str, sql: &str| format!("import psycopg2\nc = psycopg2.connect({url}).cursor()\nc.execute({sql:?})");
        for (url, sql) in [
            ("f\"postgresql://{u}:{p}@{h}/app\"", "drop database prod"),
            ("f\"postgresql://{u}@{h}/app\"", "drop schema public cascade"),
            ("host=h", "drop database prod; -- test"),
            ("host=h", "drop database prod -- test"),
            ("host=h", "/* test */ drop database prod"),
            ("host=h", "drop database test, prod"),
            ("host=h", "select '\\' -- '; drop database prod"),
            ("\"postgresql://u@[2001:db8::7]/test\"", "drop database test"),
        ] {
            assert!(is_destroyed(&at(url, sql)), "{url} {sql}");
        }
        for (url, sql) in [
            ("\"postgresql://u:p@localhost/app\"", "drop database prod"),
            ("\"postgresql://u@[::1]/app\"", "drop schema public cascade"),
            ("f\"postgresql://{u}:{p}@{h}/app\"", "drop database if exists app_test"),
            ("host=h", "select 'drop database prod'; -- test"),
            ("host=h", "drop database test -- prod"),
        ] {
            assert!(!is_destroyed(&at(url, sql)), "{url} {sql}");
        }
    }

    #[test]
    fn sql_that_is_too_long_is_told() {
        let long = |length: usize| {
            let source =
                format!("import psycopg2\npsycopg2.connect().cursor().execute('select {}')", "a".repeat(length));
            facts(Language::Python, &source).contains(&"too much: sql".to_owned())
        };
        assert!(long(65 * 1024) && !long(1024));
    }
}
