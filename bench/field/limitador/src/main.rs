//! Limitador's library behind Envoy's protocol: its own server is not published in any registry.
//!
//! As its server does it: the descriptors are bound to a list of that name, the domain is a namespace, and counters are told apart by what
//! an expression finds in the list. What answers is tonic on a runtime of one thread, as the bare server that it is compared with.

mod limits; // what it goes by
mod service; // one call

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use limitador::RateLimiter;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use service::{Limiter, Service};

/// It allocates by what the node allocates by.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: tidegate-bench-limitador (memory COUNTERS | redis URL) DOMAIN=AMOUNT/SECONDS…";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match serve(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("limitador: {message}\n\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until there is nothing more to read from whoever started it.
fn serve(words: &[String]) -> Result<(), String> {
    let [kind, value, rules @ ..] = words else { return Err("which storage?".into()) };
    let limits = rules.iter().map(|rule| limits::parse(rule)).collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]); // Its end is our end.
        std::process::exit(0);
    });
    runtime.block_on(async {
        let limiter = match kind.as_str() {
            "memory" => {
                let counters = value.parse().map_err(|_| format!("`{value}` is no number of counters"))?;
                let limiter = RateLimiter::new(counters);
                for limit in limits {
                    limiter.add_limit(limit);
                }
                Limiter::Memory(limiter)
            }
            #[cfg(feature = "redis")]
            "redis" => {
                let storage = limitador::storage::redis::AsyncRedisStorage::new(value).await;
                let storage = storage.map_err(|error| format!("no connection to {value}: {error}"))?;
                let limiter = limitador::AsyncRateLimiter::new_with_storage(Box::new(storage));
                for limit in limits {
                    limiter.add_limit(limit);
                }
                Limiter::Redis(limiter)
            }
            other => return Err(format!("unknown storage `{other}`")),
        };
        listen(Service::new(limiter)).await.map_err(|error| error.to_string())
    })
}

async fn listen(service: Service) -> std::io::Result<()> {
    let incoming = TcpIncoming::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.with_nodelay(Some(true));
    println!("RLS {}", incoming.local_addr()?);
    std::io::stdout().flush()?;
    Server::builder().add_service(service).serve_with_incoming(incoming).await.map_err(std::io::Error::other)
}
