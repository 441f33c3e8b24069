package target

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
)

// whole is a client that lets only whole answers through. The SDK would not do: it takes an empty answer for one without items, and of a checksum that
// does not fit it says so in its log, and uses the answer.
type whole struct {
	*http.Client
}

// Do implements dynamodb.HTTPClient. An answer that is not whole is an error: the call may have been performed.
func (w whole) Do(request *http.Request) (*http.Response, error) {
	response, err := w.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	// Behind a status from 500 on there may be the page of a balancer, and the status says enough.
	//rule:confirmed_is_durable.refuse-foreign-answer
	if response.StatusCode < http.StatusInternalServerError && !bytes.HasPrefix(body, []byte("{")) {
		return nil, fmt.Errorf("the answer is not DynamoDB's: %.60q", body)
	}
	// What is sent compressed has the checksum of the compressed bytes; the client has not asked for that.
	//rule:confirmed_is_durable.refuse-damaged-answer
	if said := response.Header.Get("X-Amz-Crc32"); said != "" {
		if sum := crc32.ChecksumIEEE(body); said != strconv.FormatUint(uint64(sum), 10) {
			return nil, fmt.Errorf("the answer is damaged: its checksum is %d, and should be %s",
				sum, said)
		}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
