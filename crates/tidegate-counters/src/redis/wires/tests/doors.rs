//! Passwords, TLS, sockets, sentinels.

use super::*;
use crate::redis::settings::{Login, Password, StoreTls};

fn settings(url: &str) -> RedisSettings {
    let mut settings = RedisSettings::of_url(url).unwrap();
    settings.connect_timeout = Duration::from_secs(5);
    settings
}

#[test]
fn a_socket_and_a_database_are_used() {
    let server = Redis::start(&["--unixsocket", "FOLDER/socket"]);
    run(async {
        let wires = wires(&format!("unix://{}?db=3", server.path("socket").display()));
        assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(1)));
        assert!(server.ask::<String>("INFO keyspace").contains("db3:keys=1"));
        assert!(server.ask::<String>("CLIENT LIST").contains("name=tidegate"));
    });
}

#[test]
fn a_password_file_may_change() {
    let server = Redis::start(&[]);
    let file = server.path("password");
    server.ask::<()>("ACL SETUSER tide on >first ~* +@all");
    server.ask::<()>("ACL SETUSER admin on nopass ~* +@all");
    run(async {
        std::fs::write(&file, "first  \nnot this line").unwrap();
        let mut settings = settings(&server.url());
        (settings.user, settings.password) = (Some("tide".into()), Some(Password::File(file.clone())));
        let wires = Wires::new(Servers::new(settings));
        assert!(wires.call(0, &add(&["k"]), soon()).await.is_ok());

        server.ask::<()>("ACL SETUSER tide resetpass >second");
        server.ask::<u32>("CLIENT KILL USER tide");
        until_closed(&wires).await;
        let old = wires.call(0, &add(&["k"]), soon()).await;
        let Err(CallFailed::NotDone(why)) = &old else { panic!("{old:?}") };
        assert!(
            why.contains("user `tide`") && why.contains("WRONGPASS") && why.contains("/password"),
            "{why}"
        );
        assert!(!why.contains("first"), "{why}");
        assert_eq!(count(&wires, "auth"), 1);

        std::fs::write(&file, "second").unwrap();
        let end = soon();
        while wires.call(0, &add(&["k"]), end).await.is_err() {
            assert!(Instant::now() < end, "the new password is not used");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.number("k"), 2);
    });
}

#[test]
fn what_is_wrong_with_a_login_is_told() {
    let server = Redis::start(&[]);
    server.ask::<()>("ACL SETUSER tide on >secretword ~* +@all -evalsha");
    let port = server.port;
    run(async {
        let cases = [
            (
                format!("redis://tide:wrongword@127.0.0.1:{port}"),
                "refuses the password of user `tide`: WRONGPASS",
            ),
            (format!("redis://:wrongword@127.0.0.1:{port}"), "refuses the password of the default user"),
            (format!("redis://tide:secretword@127.0.0.1:{port}"), "; allow it by ACL SETUSER"),
            (format!("redis://127.0.0.1:{port}/999"), "has no database 999"),
        ];
        for (url, part) in cases {
            let result = wires(&url).call(0, &add(&["k"]), soon()).await;
            let Err(CallFailed::NotDone(why)) = &result else { panic!("{url}: {result:?}") };
            assert!(
                why.contains(part) && !why.contains("word@") && !why.contains("wrongword"),
                "{url}: {why}"
            );
        }
        server.ask::<()>("CONFIG SET requirepass secretword");
        let wires = wires(&server.url());
        let result = wires.call(0, &add(&["k"]), soon()).await;
        assert!(
            matches!(&result, Err(CallFailed::NotDone(why)) if why.contains("wants a password")),
            "{result:?}"
        );
        assert_eq!(count(&wires, "auth"), 1);
    });
}

#[test]
fn encrypted_connections_know_whom_they_talk_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let named = |name: &str, host: &str| {
        let mut parameters = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters
    };
    let mut ca = named("ca", "ca");
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(path("ca.pem"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    for (name, host) in [("server", "127.0.0.1"), ("client", "tidegate")] {
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(
            path(&format!("{name}.pem")),
            named(name, host).signed_by(&key, &issuer).unwrap().pem(),
        )
        .unwrap();
        std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let port = free_port();
    let server = Redis::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &text("server.pem"),
        "--tls-key-file",
        &text("server.key"),
        "--tls-ca-cert-file",
        &text("ca.pem"),
    ]);
    run(async {
        let mut settings = settings(&format!("rediss://127.0.0.1:{port}"));
        let tls = StoreTls {
            ca: Some(path("ca.pem")),
            certificate: Some((path("client.pem"), path("client.key"))),
            any_name: false,
        };
        let known = tls.clone();
        settings.tls = Some(tls.clone());
        let wires = Wires::new(Servers::new(settings.clone()));
        assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(1)));
        assert_eq!(server.number("k"), 1);

        let strangers = [
            (StoreTls { ca: None, ..tls.clone() }, ["no encrypted connection", "trusts nobody"]),
            (
                StoreTls { certificate: None, ..tls.clone() },
                ["broke the connection off", "no encrypted connection"],
            ),
            (StoreTls { ca: Some(path("gone.pem")), ..tls.clone() }, ["cannot read", "gone.pem"]),
            (StoreTls { ca: Some(path("server.key")), ..tls }, ["has no certificate in it", "server.key"]),
        ];
        for (tls, parts) in strangers {
            settings.tls = Some(tls);
            let result = Wires::new(Servers::new(settings.clone())).call(0, &add(&["k"]), soon()).await;
            let Err(CallFailed::NotDone(why)) = &result else { panic!("{result:?}") };
            assert!(parts.iter().any(|part| why.contains(part)), "{why}");
        }
        // By a name that is not in the certificate: only whoever takes any does, and only from whom the roots vouch for.
        let mut renamed = self::settings(&format!("rediss://localhost:{port}"));
        std::fs::write(
            path("other.pem"),
            rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap().cert.pem(),
        )
        .unwrap();
        for (any_name, ca, connects) in
            [(false, "ca.pem", false), (true, "ca.pem", true), (true, "other.pem", false)]
        {
            renamed.tls = Some(StoreTls { ca: Some(path(ca)), any_name, ..known.clone() });
            let result = Wires::new(Servers::new(renamed.clone())).call(0, &add(&["k"]), soon()).await;
            assert_eq!(result.is_ok(), connects, "{any_name} {ca}: {result:?}");
        }
    });
}

#[test]
fn sentinels_may_want_a_password_of_their_own() {
    let server = Redis::start(&[]);
    let config = server.path("sentinel.conf");
    let text = format!("requirepass sesame\nsentinel monitor main 127.0.0.1 {} 1\n", server.port);
    std::fs::write(&config, text).unwrap();
    run(async {
        let sentinel = Redis::start_sentinel(config.to_str().unwrap());
        let mut settings = settings(&format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port));
        let result = Wires::new(Servers::new(settings.clone())).call(0, &add(&["k"]), soon()).await;
        assert!(matches!(&result, Err(CallFailed::NotDone(_))), "{result:?}");
        settings.sentinel_login = Some(Login { user: None, password: Password::Text("sesame".into()) });
        let result = Wires::new(Servers::new(settings)).call(0, &add(&["k"]), soon()).await;
        assert_eq!(result, Ok(Value::Int(1)));
    });
}

#[test]
fn sentinels_are_asked_who_is_primary() {
    let first = Redis::start(&[]);
    let second = Redis::start(&["--replicaof", "127.0.0.1", &first.port.to_string()]);
    let config = first.path("sentinel.conf");
    std::fs::write(&config, format!("sentinel monitor main 127.0.0.1 {} 1\n", first.port)).unwrap();
    run(async {
        // Sentinels look for replicas when they start, and then every 10 s.
        until("the replica is there", || first.ask::<String>("INFO replication").contains("state=online"))
            .await;
        let sentinel = Redis::start_sentinel(config.to_str().unwrap());
        let nobody = free_port();
        let url = format!("redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{}/main", sentinel.port);
        let wires = wires(&url);
        assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(1)));
        assert_eq!(first.number("k"), 1);
        until("the sentinel knows the replica", || {
            sentinel.ask::<Vec<Value>>("SENTINEL REPLICAS main").len() == 1
        })
        .await;
        until("the replica has the key", || second.number("k") == 1).await;
        until("the failover has begun", || sentinel.try_ask::<()>("SENTINEL FAILOVER main").is_ok()).await;
        // The sentinel cuts all connections to whoever changes its role, the test's own too.
        let says = |one: &Redis, role: &str| {
            one.try_ask::<String>("INFO replication").is_ok_and(|about| about.contains(role))
        };
        until("the other one is a primary", || says(&second, "role:master")).await;
        until("the first one is a replica", || says(&first, "role:slave")).await;
        let end = soon();
        // The sentinel cuts connections to the old primary, and a call may be on one of them; that one charges nothing.
        while let Err(failed) = wires.call(0, &add(&["k"]), end).await {
            assert!(Instant::now() < end, "{failed:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(second.number("k"), 2);

        let stranger = super::wires(&url.replace("/main", "/other"));
        let result = stranger.call(0, &add(&["k"]), soon()).await;
        assert!(
            matches!(&result, Err(CallFailed::NotDone(why)) if why.contains("knows no `other`")),
            "{result:?}"
        );
    });
}
