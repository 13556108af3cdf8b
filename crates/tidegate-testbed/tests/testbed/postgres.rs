//! A PostgreSQL, and a disk.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_testbed::{Disk, Postgres, PostgresOptions, until};

/// The first letter of its answer to somebody who comes in, if there is one within a moment.
fn letter(server: &Postgres) -> Result<u8, ErrorKind> {
    let kind = |error: std::io::Error| error.kind();
    let mut stream = TcpStream::connect(server.address()).map_err(kind)?;
    stream.set_read_timeout(Some(Duration::from_millis(300))).map_err(kind)?;
    stream.write_all(b"\0\0\0\x25\0\x03\0\0user\0tidegate\0database\0test\0\0\0").map_err(kind)?;
    let mut letter = [0];
    stream.read_exact(&mut letter).map_err(kind)?;
    Ok(letter[0])
}

#[test]
fn it_is_stopped_and_goes_on_and_is_killed_and_comes_back() {
    let server = Postgres::start(&PostgresOptions::new()).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(letter(&server).is_ok());
    server.stop();
    assert_eq!(letter(&server), Err(ErrorKind::WouldBlock), "who is stopped says nothing");
    server.cont();
    until("it goes on", Duration::from_secs(10), || letter(&server).map_err(|error| error.to_string()))
        .unwrap();
    let pid = server.pid();
    server.kill();
    // On a busy machine somebody may still be let in by the processes that it leaves, until they notice.
    until("nobody is there", Duration::from_secs(10), || match letter(&server) {
        Err(ErrorKind::ConnectionRefused) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    server.restart().unwrap_or_else(|reason| panic!("{reason}"));
    assert!(letter(&server).is_ok());
    assert_ne!(server.pid(), pid);
    let folder = server.folder().to_path_buf();
    drop(server);
    assert!(!folder.exists());
}

#[test]
fn a_disk_is_as_large_as_it_is() {
    let disk = match Disk::mount(8) {
        Ok(disk) => disk,
        Err(reason) => return println!("not looked at: {reason}"),
    };
    disk.fill().unwrap();
    let full = std::fs::write(disk.folder().join("more"), "more").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    disk.empty();
    std::fs::write(disk.folder().join("more"), "more").unwrap();
    let folder = disk.folder().to_path_buf();
    drop(disk);
    assert!(!folder.exists());
}
