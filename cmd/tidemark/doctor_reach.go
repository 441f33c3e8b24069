package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/attachments/s3"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/fanout"
	"github.com/tidemark-im/tidemark/reach/push/devices"
)

// reach checks Kafka, the push providers and the place of files, as far as they are configured.
func (c *doctorCommand) reach(ctx context.Context, d *diagnosis) {
	for _, check := range []func(context.Context, *diagnosis){c.kafka, c.push, c.files} {
		ctx, cancel := context.WithTimeout(ctx, 2*doctorWithin)
		check(ctx, d)
		cancel()
	}
}

// kafka checks the cluster, and the topic of the fan-out.
func (c *doctorCommand) kafka(ctx context.Context, d *diagnosis) {
	f := &c.Serve.Outlets
	if f.Kafka == "" {
		return
	}
	cluster, err := kafka.ParseURL(f.Kafka)
	if err != nil {
		return // The configuration says so.
	}
	topic := ""
	if set, err := f.fanout(cluster); err == nil && set.byKafka {
		topic = fanout.Topic(set.prefix)
	}
	found, err := cluster.Check(ctx, topic)
	d.say("kafka", found.Fine, err)
	for _, note := range found.Notes {
		d.line("note", "kafka", note)
	}
	if topic == "" && err == nil {
		d.line("note", "kafka", "the topics of outlets are not checked; send a test event to each "+
			"(POST /admin/outlets/ID/test)")
	}
}

// push checks the ways to providers. It sends no notification.
func (c *doctorCommand) push(ctx context.Context, d *diagnosis) {
	key, err := outletKey(c.Serve.Dev)
	if err != nil {
		return // The configuration says so.
	}
	set, err := c.Serve.Outlets.Push.settings(key, nil)
	if err != nil {
		return // The configuration says so.
	}
	for _, name := range []devices.Platform{devices.APNs, devices.FCM, devices.WebPush} {
		platform, is := set.platforms[name]
		if !is {
			continue
		}
		subject := "push " + string(name)
		provider, can := platform.provider.(interface{ Look(context.Context) error })
		if !can {
			d.line("note", subject, "each device names its own push service, so there is none to "+
				"check")
			continue
		}
		began := time.Now()
		err := provider.Look(ctx)
		d.say(subject, fmt.Sprintf("it answers within %v",
			time.Since(began).Round(time.Millisecond)), err)
	}
}

// files checks that files can be written, read and removed.
func (c *doctorCommand) files(ctx context.Context, d *diagnosis) {
	at, err := c.Serve.Files.parse()
	switch {
	case err != nil: // The configuration says so.
	case at.dir != "":
		switch err := dir.Check(at.dir); {
		case err != nil && tidemark.CodeOf(err) == tidemark.NotFound:
			d.line("ok", "files", at.dir+": there is no directory yet, serve makes it")
		case err != nil:
			d.say("files", "", fmt.Errorf("the directory %s cannot be used: %w; see that this "+
				"user may write to it", at.dir, err))
		default:
			d.line("ok", "files", at.dir+" can be written to")
		}
	case at.bucket != nil:
		bucket, err := s3.New(ctx, *at.bucket)
		if err == nil {
			err = bucket.Check(ctx, c.Serve.AllowOrigin)
		}
		d.say("files", "the bucket "+at.bucket.Bucket+" can be written to", err)
		if len(c.Serve.AllowOrigin) == 0 && err == nil {
			d.line("note", "files", "without --allow-origin, the bucket's CORS rule is not checked")
		}
	}
}
