//! The variables of envoyproxy/ratelimit, as settings of a node.

mod support;

use std::error::Error;
use std::fs;
use std::path::Path;

use support::differs;
use tidegate_config::{DropInRead, Fate, Given, Settings, Style, VARIABLES, read_drop_in, resolve};

type Outcome = Result<(), Box<dyn Error>>;

fn read(variables: &[(&str, &str)]) -> DropInRead {
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    read_drop_in(&variables)
}

fn settings(variables: &[(&str, &str)]) -> Settings {
    let read = read(variables);
    assert!(read.troubles.is_empty(), "{:?}", read.troubles);
    let resolved = resolve(&Given { instead: read.instead, ..Given::default() });
    assert_eq!(resolved.report.errors(), 0, "{:?}", resolved.report);
    resolved.settings
}

#[test]
fn without_any_it_is_where_the_reference_server_is() {
    let settings = settings(&[]);
    assert_eq!(settings.http.listen.map(|at| at.to_string()).as_deref(), Some("0.0.0.0:8080"));
    assert_eq!(settings.rls.listen.map(|at| at.to_string()).as_deref(), Some("0.0.0.0:8081"));
    assert_eq!(settings.rules.paths, [Path::new("/srv/runtime_data/current/config")]);
    assert!(settings.rules_said, "there are no demo rules in its place");
    assert_eq!(settings.store.url.as_deref(), Some("redis+unix:///var/run/nutcracker/ratelimit.sock"));
    assert_eq!(settings.store.reference_prefix.as_deref(), Some(""));
    assert_eq!((settings.log_level, settings.log_format), ("warn", "text"));
    let read = read(&[]);
    assert_eq!(read.drop_in.debug.to_string(), "0.0.0.0:6070");
    assert_eq!(read.drop_in.statsd.map(|statsd| (statsd.port, statsd.is_tcp)), Some((8125, true)));
    assert_eq!((read.drop_in.prometheus, read.drop_in.headers), (None, None));
}

#[test]
fn stores_are_found_by_their_urls() {
    for (variables, url) in [
        (&[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis:6379")][..], "redis://redis:6379"),
        (
            &[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "r:1"), ("REDIS_AUTH", "p@ss/w%rd")],
            "redis://:p%40ss%2Fw%25rd@r:1",
        ),
        (
            &[
                ("REDIS_SOCKET_TYPE", "TCP"),
                ("REDIS_URL", "r:1"),
                ("REDIS_AUTH", "me:a:b"),
                ("REDIS_TLS", "1"),
            ],
            "rediss://me:a%3Ab@r:1",
        ),
        (&[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis://r:1")], "redis://r:1"),
        (&[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis://me:b@r@r:1/2")], "redis://me:b%40r@r:1/2"),
        (
            &[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis://:a%40b@r:1"), ("REDIS_TLS", "true")],
            "rediss://:a%40b@r:1",
        ),
        (
            &[("REDIS_TYPE", "cluster"), ("REDIS_URL", "redis://u:p@a:1,redis://u:p@b:2")],
            "redis+cluster://u:p@a:1,b:2",
        ),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,redis://u:p@a:1,redis://u:p@b:2")],
            "redis+sentinel://a:1,b:2/m",
        ),
        (&[("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:1, b:2")], "redis+cluster://a:1,b:2"),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "my main,a:1,b:2")],
            "redis+sentinel://a:1,b:2/my%20main",
        ),
    ] {
        assert_eq!(settings(variables).store.url.as_deref(), Some(url));
    }
    let second = read(&[
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
        ("REDIS_PERSECOND_URL", "second:6379"),
    ]);
    assert_eq!(second.drop_in.per_second.map(|store| store.url).as_deref(), Some("redis://second:6379"));
}

/// Names are made over by the mogrifiers that are listed, in their order, and only if each is whole.
#[test]
fn mogrifiers_are_read_from_their_variables() {
    const LISTED: &str = "USE_DOG_STATSD_MOGRIFIERS";
    let on = [("USE_DOG_STATSD", "true")];
    let whole = [
        ("DOG_STATSD_MOGRIFIER_A_PATTERN", r"^ratelimit\.(.*)$"),
        ("DOG_STATSD_MOGRIFIER_A_NAME", "custom.$1"),
        ("DOG_STATSD_MOGRIFIER_A_TAGS", "domain:$1,team:a"),
        ("DOG_STATSD_MOGRIFIER_B_PATTERN", "b"),
        ("DOG_STATSD_MOGRIFIER_B_NAME", "b"),
    ];
    for (listed, patterns) in [("", &[][..]), ("A", &[whole[0].1]), ("B,A", &["b", whole[0].1])] {
        let read = read(&[&on[..], &whole, &[(LISTED, listed)]].concat());
        assert!(read.troubles.is_empty(), "{:?}", read.troubles);
        let dog = read.drop_in.statsd.and_then(|statsd| statsd.dog).expect("DogStatsD");
        assert_eq!(dog.iter().map(|mogrify| &*mogrify.pattern).collect::<Vec<_>>(), patterns);
        if let Some(first) = dog.iter().find(|mogrify| mogrify.name == "custom.$1") {
            let tags =
                [("domain", "$1"), ("team", "a")].map(|(name, value)| (name.to_string(), value.to_string()));
            assert_eq!(first.tags, tags);
        }
    }
    for broken in [
        &[][..],
        &[("DOG_STATSD_MOGRIFIER_A_PATTERN", ""), whole[1], whole[2]],
        &[whole[0], ("DOG_STATSD_MOGRIFIER_A_NAME", ""), whole[2]],
        &[whole[0], whole[1], ("DOG_STATSD_MOGRIFIER_A_TAGS", "tag")],
    ] {
        let read = read(&[&on[..], broken, &[(LISTED, "A")]].concat());
        assert_eq!(read.troubles.len(), 1, "{broken:?}: {:?}", read.troubles);
    }
}

/// Whoever is named in a URL is used, and shown nowhere.
#[test]
fn a_password_in_the_url_of_a_store_is_shown_nowhere() {
    for (kind, url) in [
        ("single", "redis://foo:hu@sh@r:1"),
        ("cluster", "redis://foo:hu@sh@a:1,redis://foo:hu@sh@b:2"),
        ("sentinel", "m@in,redis://foo:hu@sh@a:1,redis://foo:hu@sh@b:2"),
        ("sentinel", "redis://foo:hu@sh@a:1"),
    ] {
        let read = read(&[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_TYPE", kind), ("REDIS_URL", url)]);
        let is_whole = url.contains(',') || kind == "single";
        assert_eq!(read.troubles.is_empty(), is_whole, "{:?}", read.troubles);
        if kind == "sentinel" && is_whole {
            assert_eq!(read.drop_in.sentinel_auth.as_ref().map(|auth| &*auth.password), Some("hu@sh"));
        }
        let shown = format!("{:?}{:?}", read.troubles, read.drop_in);
        let resolved = resolve(&Given { instead: read.instead, ..Given::default() });
        let shown = format!(
            "{shown}{}{:?}",
            resolved.report.render(&resolved.sources, Style::Plain),
            resolved.settings
        );
        assert!(!shown.contains("hu@sh") && !shown.contains("hu%40sh"), "{shown}");
    }
}

#[test]
fn envoy_gateways_variables_are_understood() {
    let settings = settings(&[
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
        ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", ":19001"),
    ]);
    assert_eq!(settings.xds.server.as_deref(), Some("envoy-gateway:18001"));
    assert_eq!(settings.xds.node_id, "envoy-ratelimit");
    assert!(settings.xds.tls.is_some_and(|tls| tls.ca.is_some() && tls.certificate.is_some()));
    assert!(settings.rls.tls.is_some());
}

#[test]
fn what_is_set_and_ignored_is_known() {
    let read = read(&[("REDIS_POOL_SIZE", "50"), ("REDIS_PIPELINE_WINDOW", "0"), ("PORT", "80")]);
    let names: Vec<&str> = read.ignored.iter().map(|variable| variable.name).collect();
    assert_eq!(
        names,
        ["REDIS_POOL_SIZE"],
        "not those that say what holds anyway, nor those that are honoured"
    );
}

/// Whatever they are set to, nothing breaks, and what is wrong is told.
#[test]
fn every_variable_can_be_set_to_anything() {
    for variable in VARIABLES {
        for value in ["", "true", "0", "-1", "x", "a,b", "a:b", "1h", "99999999999999999999", "\u{0}", "ä%"]
        {
            let read = read(&[(variable.name, value)]);
            assert!(
                read.troubles.iter().all(|trouble| trouble.message.contains(variable.name)),
                "{:?}",
                read.troubles
            );
            resolve(&Given { instead: read.instead, ..Given::default() });
        }
    }
}

#[test]
fn the_page_for_whoever_changes_over_has_every_variable() -> Outcome {
    let mut table = String::from("| variable | there, by default | here | |\n|---|---|---|---|\n");
    for variable in VARIABLES {
        let default =
            if variable.default.is_empty() { String::new() } else { format!("`{}`", variable.default) };
        let note = variable.note.replace('|', "\\|");
        table += &format!("| `{}` | {default} | {} | {note} |\n", variable.name, variable.fate.name());
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrating-from-envoyproxy-ratelimit.md");
    let text = fs::read_to_string(&path)?;
    let (before, behind) = text.split_once("<!-- variables -->").ok_or("no mark")?;
    let (_, behind) = behind.split_once("<!-- end -->").ok_or("no end")?;
    let made = format!("{before}<!-- variables -->\n\n{table}\n<!-- end -->{behind}");
    assert_eq!(
        differs(&path, &made)?,
        None,
        "if that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-config"
    );
    assert!(VARIABLES.iter().any(|variable| variable.fate == Fate::Refused));
    Ok(())
}
