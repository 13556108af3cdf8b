//! What h2spec says of a port, and what we say to that.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_bench_common::client::SHOULD_RATE_LIMIT;
use tidegate_testbed::GoProgram;

use super::child;
use super::node::Node;
use super::results::{Failure, Port, Spec};
use crate::peers::Install;

/// The newest that Go's registry can install.
pub(crate) const H2SPEC: GoProgram =
    GoProgram { package: "github.com/summerwind/h2spec/cmd/h2spec", version: "v2.2.1+incompatible" };
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Its 145 tests, each of which may wait two seconds.
const ALL_MAX: Duration = Duration::from_secs(300);

/// A failure that we have looked at: does it matter, and why?
pub(crate) struct Judged {
    pub(crate) section: &'static str,
    pub(crate) test: &'static str,
    pub(crate) matters: bool,
    pub(crate) why: &'static str,
}

/// All that were seen so far. One that does not stand here is told as not judged.
pub(crate) const JUDGED: &[Judged] = &[
    Judged {
        section: "generic/2",
        test: "Sends a WINDOW_UPDATE frame on half-closed (remote) stream",
        matters: false,
        why: "the frame is accepted and the call answered; h2spec waits for a body, and what gRPC says to a call that is none \
              has headers only",
    },
    Judged {
        section: "generic/2",
        test: "Sends a PRIORITY frame on half-closed (remote) stream",
        matters: false,
        why: "the same",
    },
    Judged {
        section: "http2/3.5",
        test: "Sends invalid connection preface",
        matters: false,
        why: "the connection is ended as it must be; bytes that nobody has read make the system end it by a reset, \
              and h2spec knows the other way only",
    },
    Judged {
        section: "http2/5.1.2",
        test: "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
        matters: false,
        why: "the limit is not exceeded: the 1024 streams before were answered and closed when the next one came",
    },
    Judged {
        section: "http2/8.1.2.6",
        test: "Sends a HEADERS frame with the \"content-length\" header field which does not equal the DATA frame payload length",
        matters: false,
        why: "answered with an error of gRPC before the body came, so its length was never looked at",
    },
];

pub(crate) fn judged(failure: &Failure) -> Option<&'static Judged> {
    JUDGED.iter().find(|judged| judged.section == failure.section && judged.test == failure.test)
}

/// Looks at every port that the node has.
pub(crate) fn all(node: &Node, install: Install) -> Result<Vec<Port>, String> {
    let program = match install {
        Install::Yes => H2SPEC.find_or_build()?,
        Install::No => H2SPEC.find().ok_or("it was not built yet")?,
    };
    let mut ports = Vec::new();
    let all =
        [("gRPC", Some(node.process.address)), ("HTTP", Some(node.http)), ("control plane", node.admin)];
    for (name, address) in all.into_iter().filter_map(|(name, address)| Some((name, address?))) {
        eprintln!("h2spec: {name}");
        let spec = if speaks_http2(address)? { Some(run(&program, address)?) } else { None };
        ports.push(Port { name: name.into(), spec });
    }
    Ok(ports)
}

/// Does it answer to the preface with a frame of settings?
fn speaks_http2(address: SocketAddr) -> Result<bool, String> {
    const SETTINGS: u8 = 4;
    let asked = || -> std::io::Result<[u8; 9]> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
        let mut head = [0; 9];
        // Who does not understand may close without a word.
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => other?,
        }
        Ok(head)
    };
    let head = asked().map_err(|error| format!("{address} does not answer: {error}"))?;
    Ok(head[3] == SETTINGS && head[5..] == [0; 4])
}

/// It ends badly where a test fails, so its report is what is looked at.
fn run(program: &Path, address: SocketAddr) -> Result<Spec, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let report = folder.path().join("report.xml");
    let mut command = Command::new(program);
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string(), "-o", "2"]);
    command.args(["-P", SHOULD_RATE_LIMIT, "-j"]).arg(&report);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| format!("h2spec does not start: {error}"))?;
    child::finish("h2spec", child, ALL_MAX)?;
    let text =
        std::fs::read_to_string(&report).map_err(|error| format!("h2spec wrote no report: {error}"))?;
    parse(&text).ok_or_else(|| "h2spec wrote a report without tests".into())
}

/// JUnit's XML, as h2spec writes it.
fn parse(text: &str) -> Option<Spec> {
    let mut spec = Spec { passed: 0, skipped: 0, failures: Vec::new() };
    for part in text.split("<testcase ").skip(1) {
        let part = part.split("</testsuite>").next()?;
        let attribute = |name: &str| {
            let (_, after) = part.split_once(&format!("{name}=\""))?;
            after.split('"').next().map(plain)
        };
        let inner =
            |name: &str| part.split_once(&format!("<{name}>"))?.1.split_once("</").map(|(text, _)| text);
        if part.contains("<skipped") {
            spec.skipped += 1;
        } else if let Some(inner) = inner("error").or_else(|| inner("failure")) {
            let actual = plain(inner.trim().lines().last().unwrap_or_default());
            spec.failures.push(Failure {
                section: attribute("package")?,
                test: attribute("classname")?,
                actual: without_ports(&actual),
            });
        } else {
            spec.passed += 1;
        }
    }
    (spec.passed + spec.failures.len() > 0).then_some(spec)
}

fn plain(text: &str) -> String {
    let pairs =
        [("&#34;", "\""), ("&quot;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    pairs.iter().fold(text.to_string(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// Ports are others in every run.
fn without_ports(text: &str) -> String {
    text.split(' ').filter(|word| !word.contains("127.0.0.1:")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<testsuites>
  <testsuite name="3.5. Preface" package="http2/3.5" id="3.5" tests="3" skipped="1" failures="0" errors="1">
    <testcase package="http2/3.5" classname="Sends client connection preface" time="0.0335"></testcase>
    <testcase package="http2/3.5" classname="Sends invalid connection preface" time="2.0071">
      <error>Connection closed
Error: read tcp 127.0.0.1:57286-&gt;127.0.0.1:18081: read: connection reset by peer</error>
    </testcase>
    <testcase package="http2/3.5" classname="Sends a &#34;third&#34;" time="0"><skipped></skipped></testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn what_failed_is_read_from_the_report() {
        let spec = parse(REPORT).expect("a report");
        assert_eq!((spec.passed, spec.skipped, spec.failures.len()), (1, 1, 1));
        assert_eq!(spec.failures[0].actual, "Error: read tcp read: connection reset by peer");
        assert!(judged(&spec.failures[0]).is_some_and(|judged| !judged.matters));
        assert_eq!(parse("<testsuites></testsuites>"), None, "nothing was tested");
    }

    #[test]
    fn a_failure_that_nobody_has_looked_at_is_not_excused() {
        let known = &JUDGED[0];
        for (section, test) in
            [("http2/9", "Sends a surprise"), (known.section, "Sends a surprise"), ("http2/9", known.test)]
        {
            let new = Failure { section: section.into(), test: test.into(), actual: String::new() };
            assert!(judged(&new).is_none(), "{section} {test}");
        }
    }
}
