//! A connection that only listens. What is told on it is not read, only that something was: so there is nothing to hold, however much it
//! is, and nothing to believe.

use redis::Cmd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::Wires;
use super::connection::{Stream, password};

/// What a server answers to who we are and what we listen to.
const GREETING_BYTES_MAX: usize = 4_096;
/// The end of the answer to `SUBSCRIBE`: one channel is listened to.
const SUBSCRIBED: &[u8] = b":1\r\n";

/// It listens.
pub(in crate::redis) struct Ears {
    stream: Stream,
    heard: Box<[u8; GREETING_BYTES_MAX]>,
}

impl Wires {
    /// Listens to a channel, at the primary that answers for a slot. The caller has a deadline.
    pub(in crate::redis) async fn listen(
        &self,
        slot: u16,
        channel: &str,
        until: Instant,
    ) -> Result<Ears, String> {
        let link = self.primary(slot, until).await?;
        let (address, settings) = (&link.server.address, &self.servers.settings);
        let mut stream = Stream::connect(address, settings).await.map_err(|failed| failed.why)?;
        let mut commands = Vec::new();
        if let Some(password) = password(settings).await.map_err(|failed| failed.why)? {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = &settings.user {
                auth.arg(user);
            }
            commands.extend(packed(auth.arg(password)));
        }
        commands.extend(packed(redis::cmd("CLIENT").arg("SETNAME").arg("tidegate")));
        commands.extend(packed(redis::cmd("SUBSCRIBE").arg(channel)));
        let broken = |error: std::io::Error| format!("{address} broke the connection off: {error}");
        stream.write_all(&commands).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let mut heard = Box::new([0; GREETING_BYTES_MAX]);
        let mut filled = 0;
        loop {
            let read = match heard.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                Some(rest) => stream.read(rest).await.map_err(broken)?,
                None => 0,
            };
            if read == 0 {
                return Err(format!("{address} does not let us listen"));
            }
            filled += read;
            let said = &heard[..filled];
            if let Some(refusal) = refusal(said) {
                return Err(format!("{address} does not let us listen to `{channel}`: {refusal}"));
            }
            if said.windows(SUBSCRIBED.len()).any(|some| some == SUBSCRIBED) {
                return Ok(Ears { stream, heard });
            }
        }
    }
}

impl Ears {
    /// Waits until something came. Servers that are gone without a word are found by keepalive.
    pub(in crate::redis) async fn hear(&mut self) -> Result<(), String> {
        match self.stream.read(&mut self.heard[..]).await {
            Ok(0) => Err("the server ended the connection".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the connection broke: {error}")),
        }
    }
}

fn packed(command: &Cmd) -> Vec<u8> {
    command.get_packed_command()
}

/// The first error among answers, if it is about more than our name, which is for people who look at CLIENT LIST.
fn refusal(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.split_inclusive("\r\n").filter(|line| line.ends_with("\r\n"));
    let found = lines.find(|line| line.starts_with('-') && !line.contains("client|setname"));
    found.map(|line| line.trim_start_matches('-').trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_does_not_allow_is_found_among_its_answers() {
        let told = "*3\r\n$9\r\nsubscribe\r\n$10\r\ntg:control\r\n:1\r\n";
        assert_eq!(refusal(format!("+OK\r\n+OK\r\n{told}").as_bytes()), None);
        let no_name = "-NOPERM User x has no permissions to run the 'client|setname' command\r\n";
        assert_eq!(refusal(format!("+OK\r\n{no_name}{told}").as_bytes()), None);
        let no_channel = "-NOPERM No permissions to access a channel\r\n";
        let expected = Some("NOPERM No permissions to access a channel".to_owned());
        assert_eq!(refusal(format!("+OK\r\n{no_channel}").as_bytes()), expected);
        assert_eq!(refusal(b"+OK\r\n-NOPERM No perm"), None, "it is not all there yet");
    }
}
