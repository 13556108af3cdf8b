use proptest::prelude::*;

use super::*;

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp(host.into(), port)
}

fn one(host: &str, port: u16) -> Topology {
    Topology::Standalone(tcp(host, port))
}

#[test]
fn urls_name_servers() {
    let cases: &[(&str, Topology, u32, bool)] = &[
        ("redis://localhost", one("localhost", 6379), 0, false),
        ("redis://10.0.0.1:7000/", one("10.0.0.1", 7000), 0, false),
        ("valkey://store-1.example_a:7000/3", one("store-1.example_a", 7000), 3, false),
        ("rediss://store/1", one("store", 6379), 1, true),
        ("valkeys://store", one("store", 6379), 0, true),
        ("redis://[::1]", one("::1", 6379), 0, false),
        ("redis://u:p@[2001:DB8::1]:7000/2", one("2001:db8::1", 7000), 2, false),
        ("redis+cluster://a", Topology::Cluster(vec![tcp("a", 6379)]), 0, false),
        (
            "rediss+cluster://a:7000,[::1]:7001,b,a:7000/0",
            Topology::Cluster(vec![tcp("a", 7000), tcp("::1", 7001), tcp("b", 6379)]),
            0,
            true,
        ),
        (
            "redis+sentinel://s1,s2:26380/my%20name",
            Topology::Sentinel {
                name: "my name".into(),
                sentinels: vec![tcp("s1", 26379), tcp("s2", 26380)],
            },
            0,
            false,
        ),
        (
            "valkeys+sentinel://s1/main/5",
            Topology::Sentinel { name: "main".into(), sentinels: vec![tcp("s1", 26379)] },
            5,
            true,
        ),
        ("unix:///run/redis.sock", Topology::Standalone(Address::Unix("/run/redis.sock".into())), 0, false),
        (
            "redis+unix:///run/a%3Fb@c?db=2",
            Topology::Standalone(Address::Unix("/run/a?b@c".into())),
            2,
            false,
        ),
    ];
    for (url, topology, database, encrypted) in cases {
        let settings = RedisSettings::of_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(&settings.topology, topology, "{url}");
        assert_eq!(settings.database, *database, "{url}");
        assert_eq!(settings.tls.is_some(), *encrypted, "{url}");
    }
}

#[test]
fn urls_name_users() {
    let text = |text: &str| Some(Password::Text(text.into()));
    let cases: &[(&str, Option<&str>, Option<Password>)] = &[
        ("redis://h", None, None),
        ("redis://:secret@h", None, text("secret")),
        ("redis://tide:s%40c%2Fr%25t@h", Some("tide"), text("s@c/r%t")),
        ("redis://tide:a@b:c@h", Some("tide"), text("a@b:c")),
        ("redis://tide@h", Some("tide"), None),
        ("redis://tide:@h", Some("tide"), None),
        ("redis+cluster://tide:s@a,b", Some("tide"), text("s")),
        ("redis+sentinel://:s@a,b/n", None, text("s")),
        ("unix://tide:s@/run/x", Some("tide"), text("s")),
    ];
    for (url, user, password) in cases {
        let settings = RedisSettings::of_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!((settings.user.as_deref(), &settings.password), (*user, password), "{url}");
    }
}

#[test]
fn wrong_urls_are_told_what_is_wrong() {
    let cases = [
        ("", "no `://`"),
        ("localhost:6379", "no `://`"),
        ("http://h", "begins with `http`"),
        ("Redis://h", "none of its kinds"),
        ("redis+foo://h", "begins with `redis+foo`"),
        ("rediss+unix:///x", "begins with `rediss+unix`"),
        ("redis://", "the host of the store's URL has no name"),
        ("redis:///1", "has no name"),
        ("redis://:7000", "has no name"),
        ("redis://h:0", "port"),
        ("redis://h:", "port"),
        ("redis://h:+1", "port"),
        ("redis://h:65536", "port"),
        ("redis://h/x", "database"),
        ("redis://h/1/2", "database"),
        ("redis://h/4294967296", "database"),
        ("redis://h?db=1", "`?`"),
        ("redis://h#1", "`#`"),
        ("redis://a,b", "names one host"),
        ("redis://::1", "has no name"),
        ("redis://fe80::1", "port"),
        ("redis://h h", "brackets"),
        ("redis://[::1", "no `]`"),
        ("redis://[::1]7", "behind its `]`"),
        ("redis://[h]", "no IPv6 address"),
        ("redis+cluster://a,,b", "host 2 of the store's URL has no name"),
        ("redis+cluster://a/1", "only database 0"),
        ("redis+sentinel://a", "no name of what they watch"),
        ("redis+sentinel://a/n/x", "database"),
        ("redis://u:p/x@h", "%2F"),
        ("redis://u:100%@h", "%25"),
        ("redis://u:%ff@h", "no UTF-8"),
        ("unix://run/x", "three of them"),
        ("unix://", "no socket"),
        ("unix:///", "no socket"),
        ("unix:///x?user=a", "`db=`"),
    ];
    for (url, part) in cases {
        let error = RedisSettings::of_url(url).expect_err(url).to_string();
        assert!(error.contains(part), "{url}: {error}");
        assert!(error.contains("; write redis://host:6379"), "{url}: {error}");
    }
    let many = format!("redis+cluster://{}", vec!["a"; 65].join(","));
    assert!(RedisSettings::of_url(&many).is_err_and(|error| error.what.contains("more than 64")));
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

proptest! {
    /// Whatever is encoded comes out again, and is not to be seen.
    #[test]
    fn what_is_encoded_is_read_again(user in ".{0,12}", password in ".{0,12}", name in ".{1,12}", port in 1_u16.., database: u32) {
        let login = format!("{}:{}", encoded(&user), encoded(&password));
        let url = format!("redis+sentinel://{login}@h:{port}/{}/{database}", encoded(&name));
        let settings = RedisSettings::of_url(&url).unwrap();
        prop_assert_eq!(settings.user.unwrap_or_default(), user);
        let read = settings.password.map(|read| match read { Password::Text(text) => text, Password::File(_) => panic!("no file") });
        prop_assert_eq!(read.unwrap_or_default(), password);
        prop_assert_eq!(settings.topology, Topology::Sentinel { name, sentinels: vec![tcp("h", port)] });
        prop_assert_eq!(settings.database, database);
    }

    /// A password shows nowhere, wherever somebody put it and whichever signs are forgotten.
    #[test]
    fn passwords_never_show(
        before in "(redis|rediss[+]cluster|valkey[+]sentinel|unix|http|)(://|:/|)(user)?:?",
        around in "[:/@?#%,\\[\\] ]{0,2}",
        after in "(@host(:6379)?(/name)?(/1)?|@|:1|/1|)",
    ) {
        let url = format!("{before}Geheim{around}Wort77{after}");
        let shown = match RedisSettings::of_url(&url) {
            // Without an `@` it is a host or a path, as far as anybody can know, and without a `:` before it a user.
            Ok(settings) if url.contains('@') && before.ends_with(':') && !url.starts_with("unix") => format!("{settings:?}"),
            Ok(_) => String::new(),
            Err(error) => format!("{error} {error:?}"),
        };
        let password_is_host = around.contains('@');
        prop_assert!(!shown.contains("Geheim"), "{} shows {}", url, shown);
        prop_assert!(password_is_host || !shown.contains("Wort77"), "{} shows {}", url, shown);
    }

    /// No text breaks the reader.
    #[test]
    fn any_text_is_read_or_refused(
        url in ".{0,40}",
        tail in "(redis|redis[+]cluster|redis[+]sentinel|unix)://[a-z:/@?#%,.0-9\\[\\]]{0,24}",
    ) {
        let _ = RedisSettings::of_url(&url);
        let _ = RedisSettings::of_url(&tail);
    }
}
