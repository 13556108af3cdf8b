//! The audit trail as lines of a file: nothing is missing, whatever is killed, moved away or full.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_control::{
    AuditEntry, AuditFilter, AuditLine, AuditOrder, AuditSink, ControlStore, Quota, SinkProgress, SinkTo,
};
use tidegate_testbed::Disk;

use crate::child;
use crate::support::{alice, both};

/// For what has to happen at all.
const SOON: Duration = Duration::from_secs(60);

struct Place {
    _folder: TempDir,
    file: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.jsonl");
        Self { _folder: folder, file }
    }

    fn sink(&self) -> AuditSink {
        sink(&self.file)
    }
}

fn sink(file: &Path) -> AuditSink {
    let position = PathBuf::from(format!("{}.position", file.display()));
    AuditSink::new(SinkTo::File(file.into()), Some(position))
}

/// Runs a sink until this can be said of how far it is.
async fn until(sink: AuditSink, store: &ControlStore, what: impl Fn(&SinkProgress) -> bool) -> SinkProgress {
    let seen = RefCell::new(None);
    let reached = tokio::sync::Notify::new();
    let told = |progress: &SinkProgress| {
        if what(progress) {
            *seen.borrow_mut() = Some(progress.clone());
            reached.notify_one();
        }
    };
    let reached = async {
        tokio::select! {
            () = sink.run(store, told) => {}
            () = reached.notified() => {}
        }
    };
    tokio::time::timeout(SOON, reached).await.expect("it gets there");
    seen.into_inner().expect("it was told")
}

/// Runs a sink until it has every row.
async fn level(sink: AuditSink, store: &ControlStore) -> SinkProgress {
    let head = store.revision().await.expect("a head");
    until(sink, store, |progress| {
        progress.trouble.is_none() && progress.written == head && progress.behind() == 0
    })
    .await
}

async fn rows(store: &ControlStore) -> Vec<AuditEntry> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = store.audit(&AuditFilter::default(), AuditOrder::OldestFirst, after, 1000).await.unwrap();
        rows.extend(page.items);
        match page.next {
            Some(next) => after = next.parse().ok(),
            None => return rows,
        }
    }
}

/// Every line is a row, each row stands there after the one before it, and all are. Returns how many came again.
fn check(files: &[PathBuf], rows: &[AuditEntry]) -> usize {
    let (mut known, mut again) = (0_usize, 0);
    for file in files {
        for line in fs::read_to_string(file).expect("text").lines() {
            let entry = AuditLine::read(line.as_bytes()).and_then(AuditLine::entry).expect("a row");
            let at = usize::try_from(entry.seq).unwrap();
            assert!(at <= known + 1, "after row {known} comes {at}");
            assert_eq!(Some(&entry), rows.get(at - 1));
            again += usize::from(at <= known);
            known = known.max(at);
        }
    }
    assert_eq!(known, rows.len(), "some are missing");
    again
}

#[test]
fn nothing_is_missing_whenever_it_is_killed_and_moved_away() {
    both(async |bed| {
        let kills = if bed.server().is_some() { 12 } else { 40 };
        let place = Place::new();
        let (mut files, mut torn) = (Vec::new(), 0);
        for kill in 0..kills {
            let task = format!("sink {kill} {}", place.file.display());
            let mut storm = child::start(&task, &bed.place());
            let random = u64::from(kill + 1_u32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            // Until something was written, so many times, and a moment more.
            let mut said = 0;
            while said < 3 + random % 30 {
                storm.line().expect("it lives");
                said += 1;
            }
            let rotate = |files: &mut Vec<PathBuf>| {
                let aside = place.file.with_extension(format!("{kill}.jsonl"));
                if fs::rename(&place.file, &aside).is_ok() {
                    files.push(aside);
                }
            };
            if kill % 4 == 1 {
                rotate(&mut files); // While it runs.
            }
            std::thread::park_timeout(Duration::from_micros(random % 9_973));
            storm.kill();
            torn += usize::from(
                fs::read(&place.file).is_ok_and(|bytes| !bytes.is_empty() && !bytes.ends_with(b"\n")),
            );
            match kill % 8 {
                2 => rotate(&mut files), // And while nobody does.
                // What a kill in the middle of a write leaves.
                4 => append(&place.file, b"{\"seq\":99,\"at\":\"20"),
                _ => {}
            }
            // A file whose last line was torn when it was moved away is of no more use than its whole lines.
            for file in &files {
                cut(file);
            }
        }
        let store = bed.open().await;
        let progress = level(place.sink(), &store).await;
        files.push(place.file.clone());
        let rows = rows(&store).await;
        assert_eq!(progress.written, rows.len() as u64);
        let again = check(&files, &rows);
        println!(
            "{}: {kills} kills, {} rows, {again} written again, {torn} torn, {} files",
            bed.name(),
            rows.len(),
            files.len()
        );
    });
}

/// What was written stays written, wherever it was moved to: a new file goes on with the next row.
#[test]
fn in_the_place_of_a_file_that_was_moved_away_stands_only_what_is_new() {
    both(async |bed| {
        let (place, store) = (Place::new(), bed.open().await);
        let mut files = Vec::new();
        for round in 0..3 {
            for key in 0..70 {
                let quota = Quota::of(format!("key-{round}-{key}"));
                store.put_quota(&alice(), quota, None).await.unwrap();
            }
            level(place.sink(), &store).await;
            let aside = place.file.with_extension(format!("{round}.jsonl"));
            fs::rename(&place.file, &aside).unwrap();
            files.push(aside);
        }
        assert_eq!(check(&files, &rows(&store).await), 0, "some came again");
    });
}

fn append(file: &Path, bytes: &[u8]) {
    let mut text = fs::read(file).unwrap_or_default();
    text.extend(bytes);
    fs::write(file, text).expect("written");
}

fn cut(file: &Path) {
    let mut text = fs::read(file).expect("a file");
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    text.truncate(end);
    fs::write(file, text).expect("written");
}

#[test]
fn a_sink_that_cannot_be_written_holds_up_nothing_and_catches_up() {
    both(async |bed| {
        let (place, store) = (Place::new(), bed.open().await);
        let file = place.file.parent().unwrap().join("not/there/audit.jsonl");
        for key in 0..70 {
            store.put_quota(&alice(), Quota::of(format!("key-{key}")), None).await.unwrap();
        }
        let progress = until(sink(&file), &store, |progress| progress.failures > 0).await;
        assert_eq!((progress.written, progress.behind()), (0, 70), "{progress:?}");
        assert!(progress.trouble.is_some_and(|why| why.contains("not/there")));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        level(sink(&file), &store).await;
        check(std::slice::from_ref(&file), &rows(&store).await);
        // Somebody else's file is not written to.
        fs::write(&file, "dear diary\n").unwrap();
        store.put_quota(&alice(), Quota::of("more"), None).await.unwrap();
        let progress = until(sink(&file), &store, |progress| progress.failures > 0).await;
        assert!(progress.trouble.is_some_and(|why| why.contains("no row of an audit trail")));
        assert_eq!(fs::read_to_string(&file).unwrap(), "dear diary\n");
    });
}

#[test]
fn a_disk_that_is_full_leaves_no_gap() {
    let disk = match Disk::mount(1) {
        Ok(disk) => disk,
        Err(reason) => {
            return println!("not looked at, since this needs a disk that can be filled: {reason}");
        }
    };
    both(async |bed| {
        let store = bed.open().await;
        let file = disk.folder().join(format!("{}.jsonl", bed.name()));
        let filler = disk.folder().join("filler");
        let sized = |bytes: usize| vec![b'x'; bytes];
        // A little room is left, so that half a batch fits.
        let mut bytes = 2 << 20;
        while bytes > 4096 && fs::write(&filler, sized(bytes)).is_err() {
            bytes -= 4096;
        }
        let _ = fs::write(&filler, sized(bytes.saturating_sub(12 << 10)));
        for key in 0..200 {
            store
                .put_quota(&alice(), Quota::of(format!("key-{key}-{}", "x".repeat(200))), None)
                .await
                .unwrap();
        }
        let progress = until(sink(&file), &store, |progress| progress.failures > 1).await;
        assert!(progress.behind() > 0, "{progress:?}");
        fs::remove_file(&filler).unwrap();
        level(sink(&file), &store).await;
        check(std::slice::from_ref(&file), &rows(&store).await);
        let _ = fs::remove_file(&file);
    });
}

#[test]
fn another_trail_is_written_from_its_first_row_and_the_old_file_is_kept() {
    both(async |bed| {
        let (place, other) = (Place::new(), bed.another().await);
        let (store, another) = (bed.open().await, other.open().await);
        for key in 0..5 {
            store.put_quota(&alice(), Quota::of(format!("key-{key}")), None).await.unwrap();
        }
        another.put_quota(&alice(), Quota::of("else"), None).await.unwrap();
        level(place.sink(), &store).await;
        level(place.sink(), &another).await;
        check(std::slice::from_ref(&place.file), &rows(&another).await);
        let aside = PathBuf::from(format!("{}.replaced-5", place.file.display()));
        check(&[aside], &rows(&store).await);
    });
}
