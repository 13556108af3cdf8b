//! What is said nearest holds, and what is wrong is told with its place.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_config::{Code, Given, Resolved, Role, Setting, Style, resolve};
use tidegate_core::Algorithm;

fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("tidegate.yaml"), text).expect("written");
    folder
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn resolved(folder: &Path, flags: &[(&str, &str)], variables: &[(&str, &str)]) -> Resolved {
    let file = Some(folder.join("tidegate.yaml"));
    resolve(&Given { file, flags: pairs(flags), variables: pairs(variables), ..Given::default() })
}

fn told(resolved: &Resolved) -> String {
    resolved.report.render(&resolved.sources, Style::Plain)
}

fn from<'a>(resolved: &'a Resolved, name: &str) -> &'a str {
    let said = resolved.said.iter().find(|(setting, _)| setting.name == name);
    said.and_then(|(_, said)| said.as_ref()).map_or("", |said| &said.place)
}

#[test]
fn flags_come_before_the_environment_before_the_file_before_defaults() {
    let folder = folder("rules:\n  path: from-file\n  watch: no\n  merge_domains: true\n");
    let all = resolved(
        folder.path(),
        &[("rules.path", "from-flag")],
        &[("TIDEGATE_RULES_PATH", "from-variable"), ("TIDEGATE_RULES_WATCH", "on"), ("HOME", "x")],
    );
    assert_eq!(told(&all), "");
    assert_eq!(all.settings.rules.paths, [PathBuf::from("from-flag")]);
    assert!(all.settings.watch && all.settings.rules.merge_domains);
    assert_eq!(all.settings.rules.caps.bytes, 32 << 20);
    assert_eq!(from(&all, "rules.path"), "--rules-path");
    assert_eq!(from(&all, "rules.watch"), "TIDEGATE_RULES_WATCH");
    assert!(from(&all, "rules.merge_domains").ends_with("tidegate.yaml:4"));
    assert_eq!(from(&all, "rules.file_bytes_max"), "default");
    let of_file = resolved(folder.path(), &[], &[]);
    assert_eq!(of_file.settings.rules.paths, [folder.path().join("from-file")], "from where the file is");
    assert!(!of_file.settings.watch);
}

#[test]
fn every_setting_can_be_said_in_every_way() {
    let file = "rules: { path: p, watch: false, merge_domains: true, file_bytes_max: 2MiB }\n\
                defaults: { algorithm: gcra, consistency: local, on_store_failure: deny, local_share: 5%, replicate: 1 }\n\
                rls: { listen: '127.0.0.1:1', headers: kong, body: flat, metadata: true, connections_max: 7, connections_per_peer_max: 3, \
                  connection_age: 1h, tls_certificate: c, tls_key: k, tls_client_roots: r }\n\
                http: { listen: '[::1]:2', headers: none, body: none, default_domain: d, connections_max: 7, connections_per_peer_max: 3, \
                  idle_timeout: 3s, tls_certificate: c, tls_key: k, tls_client_roots: r }\n\
                xds: { server: 'g:1', node_id: n, node_metadata: a=b, headers: 'x-b:s:t', message_bytes_max: 1MiB, \
                  connect_timeout: 2s, keepalive: 3s, backoff: { initial: 4s, max: 5s }, \
                  tls: { enabled: true, ca: a, certificate: c, key: k, server_name: s } }\n\
                internal: { secrets_file: s, max_age: 9s, domain: i }\n\
                counters: { memory: 1GiB }\n\
                store: { url: 'redis://h', user: u, password_file: p, prefix: x, timeout: 5ms, connect_timeout: 1s, in_flight: 9, \
                  reference_names: true, reference_prefix: y, circuit: { failures: 6, within: 10s, open_for: 30s }, \
                  tls: { ca: a, certificate: c, key: k } }\n\
                control: { enabled: true, listen: '127.0.0.1:3', database: 'postgres://u@h/d', password_file: p, \
                  publish: false, allow_plain: true, tls_certificate: c, tls_key: k, tls_client_roots: r, audit_sink: s }\n\
                node: { role: decide, threads: 3, deadline: 9ms, data: d, drain_delay: 1s, drain_timeout: 2s }\n\
                log: { format: json, level: debug, refusals_per_second: 5, refusals_file: f, refusals_file_per_second: 6, \
                  refusals_file_bytes: 1MiB }\n";
    let values: Vec<(String, String)> = resolved(folder(file).path(), &[], &[])
        .said
        .iter()
        .map(|(setting, said)| {
            (setting.name.clone(), said.as_ref().map(|said| said.value.clone()).unwrap_or_default())
        })
        .collect();
    assert_eq!(values.len(), Setting::all().len());
    assert!(values.iter().all(|(_, value)| !value.is_empty()), "the file above leaves one out: {values:?}");
    let empty = folder("");
    let variables: Vec<(String, String)> = Setting::all()
        .iter()
        .zip(&values)
        .map(|(setting, (_, value))| (setting.variable(), value.clone()))
        .collect();
    for given in [
        Given { flags: values.clone(), ..Given::default() },
        Given { variables: variables.clone(), ..Given::default() },
    ] {
        let resolved = resolve(&Given { file: Some(empty.path().join("tidegate.yaml")), ..given });
        assert_eq!(resolved.report.errors(), 0, "{}", told(&resolved));
        let said = resolved.said.iter().map(|(_, said)| said.as_ref().map(|said| said.value.clone()));
        let expected = values.iter().map(|(_, value)| Some(value.clone()));
        assert!(said.eq(expected), "{:?}", resolved.said);
        assert_eq!(resolved.settings.rules.defaults.algorithm, Some(Algorithm::Gcra));
        assert_eq!(resolved.settings.rules.caps.bytes, 2 << 20);
        let settings = &resolved.settings;
        let (rls, http) = (&settings.rls, &settings.http);
        assert_eq!((rls.headers.as_slice(), rls.body), (&["kong"][..], "flat"));
        assert_eq!(
            (http.listen.as_ref().and_then(|at| Some(at.address()?.port())), http.headers.len()),
            (Some(2), 0)
        );
        assert_eq!(rls.tls.as_ref().map(|tls| tls.client_roots.is_some()), Some(true));
        assert_eq!((rls.connections_max, rls.connections_per_peer_max), (7, 3));
        assert_eq!((settings.threads, settings.counters_memory), (Some(3), 1 << 30));
        assert_eq!((settings.log_format, settings.log_level), ("json", "debug"));
        let xds = &settings.xds;
        assert_eq!((xds.server.as_deref(), xds.node_id.as_str()), (Some("g:1"), "n"));
        assert_eq!(
            (xds.message_bytes_max, xds.keepalive.as_secs(), xds.connect_timeout.as_secs()),
            (1 << 20, 3, 2)
        );
        assert_eq!((xds.backoff_initial.as_secs(), xds.backoff_max.as_secs()), (4, 5));
        assert_eq!(xds.node_metadata, [("a".into(), "b".into())]);
        assert_eq!(xds.headers[0].0, "x-b");
        let tls = xds.tls.as_ref().expect("TLS");
        assert_eq!((&tls.ca, &tls.certificate), (&Some("a".into()), &Some(("c".into(), "k".into()))));
        assert_eq!(tls.server_name.as_deref(), Some("s"));
        let control = &settings.control;
        assert_eq!((control.enabled, control.listen.map(|at| at.port())), (true, Some(3)));
        assert_eq!((control.database.as_deref(), control.allow_plain), (Some("postgres://u@h/d"), true));
        assert!(!control.publish);
        assert_eq!((settings.role, control.tls.is_some()), (Role::Decide, true));
        let store = &settings.store;
        assert_eq!((store.url.as_deref(), store.user.as_deref()), (Some("redis://h"), Some("u")));
        assert_eq!((store.timeout.as_millis(), store.connect_timeout.as_secs(), store.in_flight), (5, 1, 9));
        assert_eq!((store.prefix.as_str(), store.password_file.as_deref()), ("x", Some(Path::new("p"))));
        assert_eq!(
            (&store.tls_ca, &store.tls_certificate),
            (&Some("a".into()), &Some(("c".into(), "k".into())))
        );
    }
}

#[test]
fn a_password_in_a_url_works_and_is_shown_nowhere() {
    let file = "store: { url: 'redis://tide:se:cr@et@h:1/0', timeout: soon }\n";
    for flags in [&[][..], &[("store.url", "redis://:se:cr@et@other")]] {
        let mut resolved = resolved(folder(file).path(), flags, &[]);
        let url = resolved.settings.store.url.clone().unwrap_or_default();
        assert!(url.contains("se:cr@et"), "it is used: {url}");
        resolved.refuse("store.url", Code::BadStoreUrl, "no such host");
        let told = told(&resolved);
        let shown = format!("{told}{:?}{:?}{:?}", resolved.said, resolved.settings, resolved.sources);
        for secret in ["se:cr", "cr@et"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        let place = if flags.is_empty() { "tidegate.yaml:1:15" } else { "--store-url:1:1" };
        for words in
            ["warning[password-in-url]", "store.password_file", "error[bad-store-url]: no such host", place]
        {
            assert!(told.contains(words), "no `{words}` in\n{told}");
        }
        assert!(told.contains("error[bad-duration]"), "{told}");
    }
    let plain = resolved(folder("store: { url: 'redis://tide@h:1' }\n").path(), &[], &[]);
    assert_eq!(told(&plain), "");
}

#[test]
fn headers_for_an_xds_server_are_used_and_shown_nowhere() {
    let file = "xds: { headers: ['x-token: hush', plain-hush], keepalive: soon }\n";
    for flags in [&[][..], &[("xds.headers", "x-token:hush,x-other:hush")]] {
        let resolved = resolved(folder(file).path(), flags, &[]);
        let headers = &resolved.settings.xds.headers;
        assert_eq!(headers[0], ("x-token".into(), "hush".into()));
        let told = told(&resolved);
        let shown = format!("{told}{:?}{:?}{:?}", resolved.said, resolved.settings, resolved.sources);
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("x-token:***"), "{shown}");
        assert!(told.contains("error[bad-duration]"), "{told}");
        assert_eq!(
            told.contains("error[bad-xds]: `xds.headers` is a list of `name:value`"),
            flags.is_empty(),
            "{told}"
        );
    }
}

#[test]
fn what_is_said_of_an_xds_server_has_to_be_whole() {
    for (file, words) in [
        ("xds: { tls: { enabled: true, key: k } }\n", "error[half-of-tls]: a certificate for `xds`"),
        ("xds: { tls: { ca: k } }\n", "error[half-of-tls]: `xds.tls` is set, and not enabled"),
        ("xds: { node_metadata: [a] }\n", "error[bad-xds]: `xds.node_metadata` is a list of `name=value`"),
        ("xds: { node_metadata: '=a' }\n", "error[bad-xds]"),
        ("xds: { node_metadata: a=, headers: 'a:' }\n", ""),
    ] {
        let told = told(&resolved(folder(file).path(), &[], &[]));
        assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{file}: {told}");
    }
}

#[test]
fn half_of_a_certificate_for_the_store_is_told() {
    let resolved = resolved(folder("store: { tls: { certificate: c } }\n").path(), &[], &[]);
    assert!(told(&resolved).contains("error[half-of-tls]"), "{}", told(&resolved));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let folder = folder("rulez:\n  path: rules\nrules:\n  watch: maybe\n");
    let resolved = resolved(
        folder.path(),
        &[("rules.file_bytes_max", "32 megs")],
        &[("TIDEGATE_RULES_WATSH", "true"), ("TIDEGATE_RULES_MERGE_DOMAINS", "2")],
    );
    let told = told(&resolved);
    for words in [
        "error[unknown-key]: unknown key `rulez`",
        "did you mean `rules`?",
        "error[not-a-flag]: `maybe`",
        "tidegate.yaml:4:10",
        "error[bad-size]: `32 megs`",
        "--> --rules-file-bytes-max:1:1",
        "--> TIDEGATE_RULES_MERGE_DOMAINS:1:1",
        "warning[unknown-variable]",
        "did you mean `TIDEGATE_RULES_WATCH`?",
    ] {
        assert!(told.contains(words), "no `{words}` in\n{told}");
    }
    assert_eq!(resolved.report.errors(), 4, "{told}");
    let twice = self::folder("rules: { path: a }\n---\nrules: { path: b }\n");
    assert!(self::told(&self::resolved(twice.path(), &[], &[])).contains("error[said-twice]"));
    let missing = resolve(&Given { file: Some(folder.path().join("nowhere.yaml")), ..Given::default() });
    assert!(self::told(&missing).contains("error[unreadable-file]"));
}

#[test]
fn a_control_plane_is_not_shown_to_others_in_plain_text() {
    let folder = folder("");
    let public = ("control.listen", "0.0.0.0:8082");
    let told_of = |flags: &[(&str, &str)]| told(&resolved(folder.path(), flags, &[]));
    assert!(told_of(&[public]).contains("plain-control"), "{}", told_of(&[public]));
    assert_eq!(told_of(&[public, ("control.allow_plain", "true")]), "");
    assert_eq!(told_of(&[public, ("control.enabled", "false")]), "");
    assert_eq!(told_of(&[public, ("control.tls_certificate", "c"), ("control.tls_key", "k")]), "");
    assert_eq!(told_of(&[("control.listen", "127.0.0.1:9")]), "");
    assert!(told_of(&[("control.tls_key", "k")]).contains("half-of-tls"));
    for bad in ["mysql://h/d", "sqlite:x", "h"] {
        assert!(told_of(&[("control.database", bad)]).contains("bad-database"), "{bad}");
    }
    let url = "postgres://u:hunter2@h/d?sslmode=prefer&password=hunter2&x=y";
    let with_password = resolved(folder.path(), &[("control.database", url)], &[]);
    assert_eq!(with_password.settings.control.database.as_deref(), Some(url));
    let shown = format!("{:?} {:?} {}", with_password.said, with_password.settings, told(&with_password));
    assert!(!shown.contains("hunter2"), "{shown}");
}
