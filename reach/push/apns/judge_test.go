package apns

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
)

// TestJudge_every_reason that Apple documents in "Handling notification responses from APNs".
func TestJudge_every_reason(t *testing.T) {
	s, _ := connect(t)
	for _, tc := range []struct {
		status int
		reason string
		want   push.Outcome
	}{
		{200, "", push.Sent},
		{400, "BadCollapseId", push.Refused},
		{400, "BadDeviceToken", push.DropTarget},
		{400, "BadExpirationDate", push.Refused},
		{400, "BadMessageId", push.Refused},
		{400, "BadPriority", push.Refused},
		{400, "BadTopic", push.Refused},
		{400, "DeviceTokenNotForTopic", push.Refused},
		{400, "DuplicateHeaders", push.Refused},
		{400, "IdleTimeout", push.Refused},
		{400, "InvalidPushType", push.Refused},
		{400, "MissingDeviceToken", push.Refused},
		{400, "MissingTopic", push.Refused},
		{400, "PayloadEmpty", push.Refused},
		{400, "TopicDisallowed", push.Refused},
		{403, "BadCertificate", push.Refused},
		{403, "BadCertificateEnvironment", push.Refused},
		{403, "ExpiredProviderToken", push.Refused}, // renewed before, once
		{403, "Forbidden", push.Refused},
		{403, "InvalidProviderToken", push.Refused},
		{403, "MissingProviderToken", push.Refused},
		{403, "UnrelatedKeyIdInToken", push.Refused},
		{403, "BadEnvironmentKeyIdInToken", push.Refused},
		{404, "BadPath", push.Refused},
		{405, "MethodNotAllowed", push.Refused},
		{410, "ExpiredToken", push.DropTarget},
		{410, "Unregistered", push.DropTarget},
		{413, "PayloadTooLarge", push.Refused},
		{429, "TooManyProviderTokenUpdates", push.Retry},
		{429, "TooManyRequests", push.Retry},
		{500, "InternalServerError", push.Retry},
		{503, "ServiceUnavailable", push.Retry},
		{503, "Shutdown", push.Retry},
	} {
		a := wire.Answer{
			Status: tc.status, Header: http.Header{},
			Body: fmt.Appendf(nil, `{"reason":%q}`, tc.reason),
		}
		got := s.Provider.(*Provider).judge(a)
		if got.Outcome != tc.want || tc.want != push.Sent && got.Detail == "" {
			t.Errorf("%d %s is %+v, want %s", tc.status, tc.reason, got, tc.want)
		}
	}
	for _, body := range []string{"", "<html>", `{"reason":"<script>"}`, `{"reason":7}`} {
		got := s.Provider.(*Provider).judge(wire.Answer{Status: 400, Body: []byte(body)})
		if got.Outcome != push.Refused {
			t.Errorf("400 with %q is %+v, want Refused", body, got)
		}
	}
}
