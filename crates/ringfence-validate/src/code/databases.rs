//! Libraries that speak to databases: which of them is somebody else's, and what is destroyed there.

use std::rc::Rc;

use super::call::{Given, Place};
use super::role::Slot;
use super::value::{Held, Value};
use super::walk::Walk;
use crate::analysis::{Fact, SystemAct};
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
                let known: String = text
                    .pieces()
                    .iter()
                    .map(|piece| match piece {
                        Piece::Known(known) | Piece::Pattern(known) => known.as_str(),
                        Piece::Hole(_) => "_",
                    })
                    .collect();
                let host = known
                    .split_once("://")
                    .map(|(_, rest)| rest.rsplit_once('@').map_or(rest, |(_, rest)| rest))
                    .or_else(|| known.split_once("host=").map(|(_, rest)| rest));
                let host = host.or_else(|| is_host.then_some(known.as_str()));
                if let Some(host) = host.filter(|host| *host != "_") {
                    let host = host.split(['/', ':', ' ', '?', ',']).next().unwrap_or_default();
                    let scheme = if known.starts_with("sqlite") { "localhost" } else { host };
                    places.add(&Value::known(scheme));
                }
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
        self.hosts().iter().any(|host| !is_near(host))
    }

    fn is_here(&mut self) -> bool {
        let hosts = self.hosts();
        !hosts.is_empty() && hosts.iter().all(|host| is_near(host))
    }

    /// A text of SQL is carried out.
    fn asks(&mut self, text: &Text, given: &Given) {
        let known: String = text
            .pieces()
            .iter()
            .map(|piece| match piece {
                Piece::Known(known) | Piece::Pattern(known) => known.as_str(),
                Piece::Hole(_) => "?",
            })
            .collect();
        if known.len() > 64 * 1024 {
            return;
        }
        let lower = known.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
        if LEAVES.iter().any(|word| lower.contains(word)) {
            // What a client would do with it says the same.
            let place = Place { span: given.span, literal: None };
            let words = vec![Rc::new(Value::known("-c")), Rc::new(Value::known(known.as_str()))];
            let alone = Given { span: given.span, ..Given::default() };
            self.program(Some((Rc::new(Value::known("psql")), place)), Some(words), &alone);
        }
        let is_tried = ["test", "tmp", "temp", "_dev", "scratch"].iter().any(|word| lower.contains(word));
        for part in lower.split(';').map(str::trim) {
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
            if whole && (elsewhere || (!self.is_here() && !is_tried)) || tables && elsewhere || each && !self.is_here()
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

/// Whether a database of this host is the developer's own: this machine, or a service beside it by a bare name.
fn is_near(host: &str) -> bool {
    host.is_empty()
        || matches!(host, "localhost" | "::1" | "[" | "0.0.0.0" | "host.docker.internal")
        || host.starts_with("127.")
        || !host.contains('.')
}
