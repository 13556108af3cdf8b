//! TLS on both listeners: who is let in, and certificates that change while the node runs.

use crate::support::certificates::{Authority, Certificate, TlsClient};
use crate::support::{Grpc, Http, Node, Setup, asks, descriptor, until};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 1000/1h }
";

const H2: &[u8] = b"h2";
const HTTP: &[u8] = b"http/1.1";

fn with_tls(setup: Setup, certificate: &Certificate, clients: Option<&Authority>) -> Setup {
    setup.write("tls/chain.pem", &certificate.chain);
    setup.write("tls/key.pem", &certificate.key);
    let mut setup = setup;
    for server in ["rls", "http"] {
        setup = setup.set(&format!("{server}-tls-certificate"), "tls/chain.pem");
        setup = setup.set(&format!("{server}-tls-key"), "tls/key.pem");
        if let Some(clients) = clients {
            setup.write("tls/clients.pem", &clients.root());
            setup = setup.set(&format!("{server}-tls-client-roots"), "tls/clients.pem");
        }
    }
    setup
}

/// Is such a client served by both listeners? Whoever is not is sent away during the handshake, or at its first words.
async fn is_served(node: &Node, client: &TlsClient<'_>, name: &str) -> [bool; 2] {
    let over = |protocol: &'static [u8]| TlsClient { protocol, ..*client };
    let rls = match over(H2).connect(node.rls, name).await {
        Ok(stream) => match Grpc::over(stream).await {
            Ok(rls) => rls.try_ask(&asks("shop", [descriptor(&[("user", "a")])]), &[]).await.is_ok(),
            Err(_) => false,
        },
        Err(_) => false,
    };
    let http = match over(HTTP).connect(node.http, name).await {
        Ok(stream) => {
            let mut http = Http::over(stream);
            http.send(b"GET /livez HTTP/1.1\r\nhost: node\r\n\r\n").await;
            http.reply(true).await.is_some_and(|answer| answer.status == 200)
        }
        Err(_) => false,
    };
    [rls, http]
}

#[tokio::test]
async fn with_tls_nobody_is_served_without_it() {
    let (ours, other) = (Authority::new(), Authority::new());
    let node = with_tls(Setup::new(RULES), &ours.sign("node.test"), None).start();
    let client = |trusts| TlsClient { trusts, shows: None, protocol: H2 };
    assert_eq!(is_served(&node, &client(&ours), "node.test").await, [true, true]);
    assert_eq!(is_served(&node, &client(&other), "node.test").await, [false, false], "an unknown authority");
    assert_eq!(is_served(&node, &client(&ours), "other.test").await, [false, false], "another name");
    let mut plain = node.http().await;
    plain.send(b"GET /livez HTTP/1.1\r\nhost: node\r\n\r\n").await;
    assert!(plain.reply(true).await.is_none());
    let stream = tokio::net::TcpStream::connect(node.rls).await.expect("a connection");
    if let Ok(rls) = Grpc::over(stream).await {
        assert!(rls.try_ask(&asks("shop", [descriptor(&[("user", "a")])]), &[]).await.is_err());
    }
    // Speaking the other protocol is no use either.
    let wrong = TlsClient { trusts: &ours, shows: None, protocol: b"h3" };
    assert!(wrong.connect(node.rls, "node.test").await.is_err());
    until("the refused are counted", async || {
        let mut http = Http::over(client(&ours).connect_http(&node).await);
        let page = http.get("/metrics").await.body;
        let row = "tidegate_connections_refused_total{server=\"rls\",reason=\"handshake\"} ";
        let count = page.lines().find_map(|line| line.strip_prefix(row)?.parse::<u64>().ok())?;
        (count >= 4).then_some(())
    })
    .await;
}

impl TlsClient<'_> {
    async fn connect_http(&self, node: &Node) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        TlsClient { protocol: HTTP, ..*self }.connect(node.http, "node.test").await.expect("a connection")
    }
}

#[tokio::test]
async fn where_clients_have_to_show_a_certificate_others_are_not_let_in() {
    let (servers, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    let node = with_tls(Setup::new(RULES), &servers.sign("node.test"), Some(&clients)).start();
    let (envoy, stranger) = (clients.sign("envoy.test"), other.sign("envoy.test"));
    for (shows, served, who) in [
        (Some(&envoy), true, "one of ours"),
        (None, false, "nobody"),
        (Some(&stranger), false, "one of another authority"),
    ] {
        let client = TlsClient { trusts: &servers, shows, protocol: H2 };
        assert_eq!(is_served(&node, &client, "node.test").await, [served; 2], "{who}");
    }
}

#[tokio::test]
async fn certificates_that_change_are_used_and_broken_ones_are_not() {
    let (servers, clients, later) = (Authority::new(), Authority::new(), Authority::new());
    let node = with_tls(Setup::new(RULES), &servers.sign("old.test"), Some(&clients)).start();
    let envoy = clients.sign("envoy.test");
    let client = TlsClient { trusts: &servers, shows: Some(&envoy), protocol: H2 };
    let open = Grpc::over(client.connect(node.rls, "old.test").await.expect("a connection")).await;
    let open = open.expect("a connection");

    let new = servers.sign("new.test");
    node.setup.write("tls/chain.pem", &new.chain);
    node.setup.write("tls/key.pem", &new.key);
    until("the new certificate is shown", async || {
        (is_served(&node, &client, "new.test").await == [true, true]).then_some(())
    })
    .await;
    assert_eq!(is_served(&node, &client, "old.test").await, [false, false]);
    let ask = asks("shop", [descriptor(&[("user", "a")])]);
    assert_eq!(open.ask(&ask).await.overall_code, 1, "an old connection goes on");

    // A key that is not its own, nothing at all, and a file that is gone.
    let errors = async |count: usize| {
        until("it is told", async || {
            (node.log().matches("the old ones stay").count() >= count).then_some(())
        })
        .await;
        assert_eq!(is_served(&node, &client, "new.test").await, [true, true]);
    };
    node.setup.write("tls/key.pem", &servers.sign("other.test").key);
    errors(2).await;
    node.setup.write("tls/chain.pem", "nothing\n");
    errors(4).await;
    std::fs::remove_file(node.setup.path().join("tls/key.pem")).expect("removed");
    errors(6).await;

    // Roots for clients change as well.
    let newest = servers.sign("newest.test");
    node.setup.write("tls/clients.pem", &later.root());
    node.setup.write("tls/chain.pem", &newest.chain);
    node.setup.write("tls/key.pem", &newest.key);
    let envoy = later.sign("envoy.test");
    let client = TlsClient { trusts: &servers, shows: Some(&envoy), protocol: H2 };
    until("others are let in", async || {
        (is_served(&node, &client, "newest.test").await == [true, true]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn tls_that_is_not_whole_does_not_start() {
    let ours = Authority::new().sign("node.test");
    let setup = Setup::new(RULES);
    setup.write("chain.pem", &ours.chain);
    setup.write("key.pem", &ours.key);
    setup.write("other.pem", &Authority::new().sign("node.test").key);
    for server in ["rls", "http"] {
        let set = |pairs: &[(&str, &str)]| {
            let of = |name: &str| format!("{server}-tls-{name}");
            let flags = pairs.iter();
            flags.fold(setup.clone(), |setup, (name, value)| setup.set(&of(name), value)).run_node()
        };
        for half in [("certificate", "chain.pem"), ("key", "key.pem"), ("client-roots", "chain.pem")] {
            let answer = set(&[half]);
            assert_eq!((answer.code, answer.out.as_str()), (78, ""));
            let told = format!("TLS for `{server}` needs both a certificate and its key");
            assert!(answer.err.contains(&told), "{}", answer.err);
        }
        for (pairs, told) in [
            (&[("certificate", "chain.pem"), ("key", "other.pem")][..], "chain.pem and other.pem: "),
            (
                &[("certificate", "nowhere.pem"), ("key", "key.pem")],
                "nowhere.pem: it cannot be read: No such file",
            ),
            (
                &[("certificate", "key.pem"), ("key", "key.pem")],
                "key.pem: there is no certificate in it (PEM is expected)",
            ),
            (
                &[("certificate", "chain.pem"), ("key", "chain.pem")],
                "chain.pem: there is no private key in it (PEM is expected)",
            ),
            (
                &[("certificate", "chain.pem"), ("key", "key.pem"), ("client-roots", "key.pem")],
                "key.pem: there is no certificate in it (PEM is expected)",
            ),
        ] {
            let answer = set(pairs);
            assert_eq!(answer.code, 1, "{}", answer.err);
            assert!(answer.err.contains(&format!("{server}.listen: {told}")), "{}", answer.err);
        }
    }
}
